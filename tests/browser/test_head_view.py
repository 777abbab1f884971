"""The head view in a browser: what it shows of the weights, and that its numbers are the model's."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.views import head_view
from tests.browser.inputs import (
    PAIR,
    TEXT,
    in_python,
    long_reader,
    minilm,
    patterns,
    sum_in_python,
    tiny,
    told,
    words,
)

pytestmark = pytest.mark.browser
STEP = 2 / 255
"""The largest error of a weight near 1 that comes from storing it in one byte, and more than that of a small one."""


@pytest.fixture(scope="module")
def view():
    return head_view(minilm(), TEXT, state={"layer": 2})


@pytest.fixture(scope="module")
def weights():
    return patterns(minilm(), TEXT)


def close(page, row: np.ndarray, names: list[str], *, most: int = 5) -> None:
    """Waits until the status line names the largest weights of a row, computed from the model itself."""

    def check() -> None:
        found = page.named()
        assert len(found) == min(most, int((row > 1e-5).sum()))
        for text, value in found:
            assert abs(value - row[names.index(text)]) <= STEP * max(1, row.sum()) + 0.005, (page.status, text)
        assert abs(row[names.index(found[0][0])] - row.max()) <= STEP

    page.until(check)


def test_pointing_at_a_token_shows_its_weights(show, view, weights):
    page, names = show(view), told(view)
    page.ready()
    page.token("left", 7).hover()
    close(page, weights[2, :, 7].mean(0), names)
    page.says("Layer 2, 12 heads", "“\u2068un\u2069” looks at")
    page.painted("hover", 1)
    page.token("right", 7).hover()
    page.says("is looked at by")
    close(page, weights[2, :, :, 7].mean(0), names)
    page.painted("hover", 2)
    page.away()
    page.says("17 in view")
    page.painted("hover", 3)


def test_the_numbers_are_those_of_python(show, view):
    page = show(view)
    page.ready()
    for change in (
        {"left": [4]},
        {"left": [4], "heads": [3]},
        {"left": [4, 7, 9], "heads": [0, 5, 11]},
        {"left": [2], "average": "heads", "heads": [1, 2]},
        {"left": [2], "average": "layers", "heads": [1, 2]},
        {"left": [5], "unit": "words"},
        {"left": [5, 1], "unit": "words", "average": "layers", "hideSpecial": True},
        {"left": [6], "hideSinks": True, "mass": 0.5},
    ):
        page.set(left=[], heads=list(range(12)), average="none", unit="tokens", hideSpecial=False, hideSinks=False)
        page.set(**change)
        page.shows(sum_in_python(view, page.state()))


def test_several_pinned_tokens_add_up(show, view, weights):
    page, names = show(view.with_state(heads=[3, 8])), told(view)
    page.ready()
    page.token("left", 4).click()
    assert page.state()["left"] == [4]
    page.away()
    close(page, weights[2, [3, 8], 4].mean(0), names)
    page.token("left", 9).click()
    page.token("left", 12).click()
    page.away()
    assert page.state()["left"] == [4, 9, 12]
    page.says("together look at")
    close(page, weights[2][[3, 8]][:, [4, 9, 12]].sum(1).mean(0), names)
    assert page.token("left", 9).get_attribute("aria-selected") == "true"
    page.token("left", 9).click()
    assert page.state()["left"] == [4, 12]
    page.token("right", 0).click()
    assert page.state()["right"] == [0]
    page.page.keyboard.press("Escape")
    assert (page.state()["left"], page.state()["right"]) == ([], [])
    page.away()
    page.says("17 in view")


def test_arrow_keys_step_through_layers(show, view, weights):
    page, names = show(view.with_state(left=[12])), told(view)
    page.ready()
    page.page.locator(".stage").focus()
    steps = (("ArrowRight", 3), ("]", 4), ("ArrowLeft", 3), ("[", 2), ("ArrowLeft", 1), ("ArrowLeft", 0))
    for count, (key, layer) in enumerate(steps, 1):
        page.page.keyboard.press(key)
        assert page.state()["layer"] == layer
        page.says(f"Layer {layer}, ")
        close(page, weights[layer, :, 12].mean(0), names)
        page.painted("layer", count)
    page.page.keyboard.press("ArrowLeft")
    assert page.state()["layer"] == 0


def test_means_over_heads_and_layers(show, view, weights):
    page, names = show(view.with_state(left=[6], heads=[0, 4])), told(view)
    page.ready()
    page.choose("Mean over", "heads")
    page.says("mean of 2 heads")
    close(page, weights[2, [0, 4], 6].mean(0), names)
    page.choose("Mean over", "layers")
    page.says("over 6 layers")
    close(page, weights[:, [0, 4], 6].mean((0, 1)), names)


def test_words_sum_over_keys_and_average_over_queries(show, view, weights):
    page = show(view.with_state(left=[9], heads=[7]))
    page.ready()
    page.choose("Units", "words")
    parts = [[0], [1, 2, 3], [4], [5], [6], [7, 8, 9, 10, 11], [12], [13, 14], [15], [16]]
    names = ["[CLS]", "locksmiths", "looked", "at", "two", "unbelievably", "old", "keyholes", ".", "[SEP]"]
    assert page.state()["left"] == [5]  # the pin moved to the word of its token
    page.until(lambda: _equal(page.tokens("right").all_inner_texts(), names))
    row = weights[2, 7, 7:12].mean(0)
    close(page, np.array([row[part].sum() for part in parts]), names)
    page.choose("Units", "tokens")
    assert page.state()["left"] == [7]


def _equal(one, other) -> None:
    assert one == other


def test_hidden_tokens_leave_and_their_share_is_said(show, view, weights):
    page, names = show(view.with_state(left=[6], heads=[2], mass=1)), told(view)
    page.ready()
    page.page.get_by_label("special tokens").check()
    page.until(lambda: _equal(page.tokens("left").all_inner_texts(), names[1:-1]))
    row = weights[2, 2, 6]
    close(page, row[1:-1], names[1:-1])  # not normalised again
    page.until(lambda: _equal(_number(page, "hidden"), pytest.approx(row[0] + row[-1], abs=0.01 + STEP)))
    page.page.get_by_label("special tokens").uncheck()
    page.page.get_by_label("sinks").check()
    page.until(lambda: _equal(page.tokens("left").all_inner_texts(), names[1:]))
    page.until(lambda: _equal(_number(page, "hidden"), pytest.approx(row[0], abs=0.01 + STEP)))


def _number(page, word: str) -> float:
    """The number before a word of the status line."""
    before = page.status.partition(f" {word}")[0]
    return float(before.split()[-1])


def test_the_cut_says_what_it_drops(show, view):
    page = show(view.with_state(left=[6], heads=[2]))
    page.ready()
    for mass in (0.3, 0.6, 0.9):
        page.set(mass=mass)
        found = in_python(view, page.state())
        dropped = float(found.sum(0, found.left).dropped[0])
        page.until(lambda right=dropped: _equal(_number(page, "not drawn"), pytest.approx(right, abs=0.0051)))
        assert dropped <= 1 - mass + 1e-6
    page.set(mass=1)
    page.until(lambda: _equal("not drawn" in page.status, False))


def test_sentence_pairs_can_be_filtered(show):
    view = head_view(minilm(), TEXT, pair=PAIR, state={"layer": 4})
    names = told(view)
    weights = patterns(minilm(), TEXT, PAIR)[4]
    page = show(view)
    page.ready()
    page.choose("From", "1")
    page.choose("To", "0")
    second = [place for place, part in enumerate(view.header["panels"][0]["tokens"]["text"]["segment"]) if part]
    first = [place for place in range(len(names)) if place not in second]
    page.until(lambda: _equal(page.tokens("left").all_inner_texts(), [names[place] for place in second]))
    assert page.tokens("right").all_inner_texts() == [names[place] for place in first]
    page.token("left", 1).hover()
    page.shows(largest_of(view, page, second[1]))
    assert abs(page.named()[0][1] - weights[:, second[1]].mean(0)[first].max()) <= STEP


def largest_of(view, page, query: int) -> list[tuple[str, float]]:
    return sum_in_python(view, {**page.state(), "left": [query]})


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_encoder_decoders_have_three_kinds_of_attention(show, name):
    model = tiny(name)
    text, target = "the keys near the cabinet are old", "a dog runs"
    view = head_view(model, text, target=target)
    page = show(view)
    page.ready()
    assert page.page.locator(".stage label:has(> span:text-is('Attention')) option").all_inner_texts() == [
        "Encoder", "Decoder", "Decoder to encoder",
    ]  # fmt: skip
    for block, queries, keys in (
        ("cross", "target", "source"), ("decoder", "target", "target"), ("encoder", "source", "source"),
    ):  # fmt: skip
        page.choose("Attention", block)
        for side, names in (("left", told(view, queries)), ("right", told(view, keys))):
            page.until(lambda side=side, names=names: _equal(page.tokens(side).all_inner_texts(), names))
        page.set(left=[2])
        page.shows(sum_in_python(view, page.state()))
        row = patterns(model, text, site=f"{block}.pattern", target=target)[0][:, 2].mean(0)
        assert abs(page.named()[0][1] - row.max()) <= STEP + 0.005


def test_generated_tokens_are_a_part_of_their_own(show):
    model = tiny("gpt2")
    view = head_view(model, words(6), generate=4)
    page = show(view)
    page.ready()
    assert page.tokens("left").count() == 10
    segments = view.header["panels"][0]["tokens"]["text"]["segments"]
    assert len(segments) == 2
    page.choose("From", "1")
    page.until(lambda: _equal(page.tokens("left").count(), 4))
    page.token("left", 0).hover()
    page.shows(largest_of(view, page, 6))
    page.away()
    page.choose("To", "1")
    page.until(lambda: _equal(page.tokens("right").count(), 4))


def test_heads_are_chosen_by_their_chips(show, view, weights):
    page, names = show(view.with_state(left=[4])), told(view)
    page.ready()
    chips = page.page.locator(".chip")
    assert chips.count() == 12
    chips.nth(5).dblclick()
    assert page.state()["heads"] == [5]
    close(page, weights[2, 5, 4], names)
    chips.nth(1).click()
    assert page.state()["heads"] == [1, 5]
    page.page.get_by_role("button", name="None", exact=True).click()
    page.says("No head is shown")
    page.page.get_by_role("button", name="All", exact=True).click()
    close(page, weights[2, :, 4].mean(0), names)


def test_long_texts_have_few_rows(show):
    model, text, count = long_reader(), words(1024), 1024
    view = head_view(model, text, state={"heads": [0]})
    assert len(told(view)) == count
    page = show(view)
    page.ready()
    window = page.page.locator(".lines-window")
    for fraction in (0, 0.5, 1):
        window.evaluate("(it, at) => { it.scrollTop = at * it.scrollHeight }", fraction)
        place = min(count - 1, int(fraction * count) + (3 if fraction < 1 else 0))
        page.token("left", place).wait_for()
        assert page.tokens("left").count() <= 45
        assert page.tokens("right").count() <= 45
    page.token("left", count - 2).hover()
    page.shows(largest_of(view, page, count - 2))
    row = patterns(model, text)[0, 0, count - 2]
    assert abs(page.named()[0][1] - row.max()) <= STEP
    page.painted("scroll", 1)


def test_a_token_pointed_at_is_forgotten_when_the_view_goes_away(show, view):
    page = show(view)
    page.ready()
    page.token("left", 7).hover()
    page.says("looks at")
    page.set(mode="model")
    page.page.locator(".panel canvas").first.wait_for()
    page.away()
    page.set(mode="heads", layer=3)
    page.ready()
    page.says("Layer 3, 12 heads", "17 in view")
    assert "looks at" not in page.status
