"""Views with a model behind them, from the local server."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.views import head_view
from pellucid.views.interactive import scene
from tests.browser.inputs import TEXT, long_reader, minilm, told, words

pytestmark = pytest.mark.browser


def chunks(page) -> list[str]:
    return [url.partition("/chunk/")[2] for url in page.asked if "/chunk/" in url]


def test_long_texts_bring_only_the_rows_that_are_seen(show, monkeypatch):
    monkeypatch.setattr(scene, "LARGEST", 10**6)
    model, text = long_reader(), words(1600)
    view = head_view(model, text, state={"layer": 1, "heads": [2]})
    assert view.live.large
    count = len(told(view))
    assert count >= 1600
    rows = view.header["panels"][0]["blocks"][0]["strip"]
    assert rows < count / 2
    with view.serve() as server:
        page = show(server.url)
        page.ready()
        page.says("of 1,60")
        assert {name for name in chunks(page) if name[0] == "a"} == {"a/0/self/attention/1/2/0"}
        page.page.locator(".lines-window").evaluate("it => { it.scrollTop = it.scrollHeight }")
        page.token("left", count - 1).wait_for()
        page.token("left", count - 1).hover()
        page.says("looks at")
        seen = {name for name in chunks(page) if name[0] == "a"}
        assert f"a/0/self/attention/1/2/{(count - 1) // rows}" in seen
        assert all(name.startswith("a/0/self/attention/1/2/") for name in seen)
        assert len(seen) < -(-count // rows) or -(-count // rows) <= 3
        assert page.tokens("left").count() < 50
        exact = model.run(text, ["pattern.1"])["pattern.1"][0, 2, -1].double().numpy()
        page.says("(exact)")
        assert page.named()[0][1] == pytest.approx(exact.max(), abs=0.00006)
        page.close()


def test_exact_weights_come_from_the_model(show):
    model = minilm()
    view = head_view(model, TEXT, state={"layer": 3, "heads": [4]})
    names = told(view)
    exact = model.run(TEXT, ["pattern.3"])["pattern.3"][0, 4].double().numpy()
    with view.serve() as server:
        page = show(server.url)
        page.ready()
        for query in (2, 11):
            page.token("left", query).hover()
            page.says(f"“\u2068{names[query]}\u2069” looks at", "(exact)")
            best = np.argsort(-exact[query])[:5]
            assert [text for text, _ in page.named()] == [names[place] for place in best]
            for (_, value), place in zip(page.named(), best, strict=True):
                assert value == pytest.approx(exact[query, place], abs=0.00006)
        page.close()


def test_a_server_that_does_not_answer_is_told(show, monkeypatch):
    monkeypatch.setattr(scene, "LARGEST", 10)
    with head_view(minilm(), TEXT).serve() as server:
        page = show(server.url)
        page.ready()
        page.context.route("**/chunk/**", lambda route: route.abort())
        page.page.locator(".stage").focus()
        page.page.keyboard.press("ArrowRight")
        page.page.locator(".absent:visible").wait_for()
        assert page.page.locator(".absent:visible").inner_text() != ""
        page.context.unroute("**/chunk/**")
        page.page.keyboard.press("ArrowRight")  # the next layer is there again
        page.page.locator(".absent").wait_for(state="hidden")
        page.says("Layer 2, ")
        page.problems.clear()  # the browser itself reports the connections that failed
        page.close()


def test_a_closed_server_answers_nobody(show, monkeypatch):
    monkeypatch.setattr(scene, "LARGEST", 10)
    with head_view(minilm(), TEXT).serve() as server:
        page = show(server.url)
        page.ready()
    page.page.locator(".stage").focus()
    page.page.keyboard.press("ArrowRight")
    page.page.locator(".absent:visible").wait_for()
    page.close()
    page.problems.clear()  # the browser itself reports the connections that failed
