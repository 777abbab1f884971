"""The view of an attribution in a browser: its colours are chosen, and tokens tell their numbers."""

from __future__ import annotations

import pytest

from pellucid.views import attribution_view
from tests.views.attribution_results import drawn

pytestmark = pytest.mark.browser


def test_places_are_chosen_and_tokens_tell_their_numbers(show):
    result = drawn(measures=2, places=3)
    page = show(attribution_view(result))
    for track, place in (("integrated_gradients · resid.0", 0), ("saliency · resid.2", 2)):
        page.choose("Colour", track)
        which = 0 if track.startswith("integrated") else 1
        page.page.locator(".text-view .token").nth(3).hover()
        value = float(result.values[which, 0, place, 3])
        page.says("“\u2068was\u2069”", f"{abs(value):.2f}")
    page.choose("Values", "saliency")
    assert page.state()["map"] == "saliency"
    assert page.page.get_by_text("Size of the target's gradient").count() > 0
