"""Views with a model behind them: long texts by need, exact rows, and the local server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import numpy as np
import pytest

from pellucid.errors import PellucidError
from pellucid.views import head_view, text_view
from pellucid.views.interactive import live, scene
from tests.tiny_models import hook_count
from tests.views.interactive.decoding import STAND_IN, TEXT, block, head_codes, model


@pytest.fixture
def large(monkeypatch):
    """A view of a text that counts as long."""
    monkeypatch.setattr(scene, "LARGEST", 10)
    monkeypatch.setattr(scene, "strip_rows", lambda queries, keys: 4)
    return head_view(model("gpt2"), TEXT)


@pytest.fixture
def passes(monkeypatch):
    """The sites of every pass from now on."""
    seen, run = [], type(model("gpt2")).run

    def counted(self, batch, sites=(), *rest, **options):
        seen.append([str(site) for site in sites])
        return run(self, batch, sites, *rest, **options)

    monkeypatch.setattr(type(model("gpt2")), "run", counted)
    return seen


def get(server, path: str) -> bytes:
    with urllib.request.urlopen(server.url + path, timeout=20) as answer:
        return answer.read()


def test_long_texts_hold_no_weights_and_make_them_by_layer(large, passes, monkeypatch):
    monkeypatch.setattr(live, "LAYERS", 2)
    assert {name[0] for name in large.payload.chunks} == {"t", "s"}
    assert any("when they are looked at" in note for note in large.notes)
    exact = model("gpt2").run(TEXT, ["pattern.2"])["pattern.2"][0, 3].double().numpy()
    passes.clear()
    assert np.abs(head_codes(large, 2, 3)[0] / 255 - np.sqrt(exact)).max() <= 0.5 / 255 + 1e-6
    head_codes(large, 2, 0)
    assert passes == [["pattern.2"]]  # one pass for all heads and strips of a layer
    for layer in (0, 1, 0, 2, 0):
        large.chunk(f"a/0/self/attention/{layer}/0/0")
    assert passes == [["pattern.2"], ["pattern.0"], ["pattern.1"], ["pattern.2"]]  # the two used last are kept


def test_a_pass_for_one_layer_ends_there_and_leaves_no_hook(large):
    opened, called = model("gpt2"), []
    hooks = hook_count(opened.hf)
    handle = opened.hf.transformer.h[2].register_forward_hook(lambda *_: called.append(2))
    try:
        large.chunk("a/0/self/attention/1/0/0")
        large.live.exact(0, "self", "attention", 1, 0, 0)
        assert called == []
        large.chunk("a/0/self/attention/2/0/0")
    finally:
        handle.remove()
    assert hook_count(opened.hf) == hooks


def test_a_file_of_a_long_text_is_refused(large, tmp_path):
    with pytest.raises(PellucidError, match=r"use serve\(\)"):
        large.save(tmp_path / "x.html")
    assert list(tmp_path.glob("x*")) == []


@pytest.mark.parametrize(
    "name",
    ["a/0/self/attention/9/0/0", "a/0/self/attention/0/9/0", "a/0/self/attention/0/0/9", "a/1/self/attention/0/0/0",
     "a/0/cross/attention/0/0/0", "a/0/self/norm/0/0/0", "a/0/self/attention/x/0/0", "a/../0", "q/0/self/0", ""],
)  # fmt: skip
def test_chunks_that_do_not_exist_are_refused(large, name):
    with pytest.raises(PellucidError, match="There is no"):
        large.chunk(name)


def test_exact_rows_are_the_models_own(passes, monkeypatch):
    for limit in (live._EXACT, 8):
        monkeypatch.setattr(live, "_EXACT", limit)
        view = head_view(model("llama"), TEXT)
        exact = model("llama").run(TEXT, ["pattern.1"])["pattern.1"][0]
        passes.clear()
        for head, query in ((0, 0), (3, 5), (2, 5)):
            row = view.live.exact(0, "self", "attention", 1, head, query)
            assert row.dtype == np.float32
            assert (row == exact[head, query].numpy()).all()
        assert len(passes) == (1 if limit > 8 else 2)  # whole layers are kept where they are small, else rows


def test_the_server_answers_this_machine(large):
    with large.serve() as server:
        assert server.url.startswith("http://127.0.0.1:")
        page = get(server, "").decode()
        assert 'id="pellucid"' in page
        assert "openHttp" in page
        assert json.loads(get(server, "header.json")) == json.loads(json.dumps(large.header))
        assert get(server, "bundle.js") == STAND_IN
        name = f"a/0/self/attention/2/1/{len(TEXT.split()) // 4}"
        assert get(server, f"chunk/{name}") == large.chunk(name).stored
        assert get(server, "chunk/t/0/self/attention") == large.payload.chunks["t/0/self/attention"].stored
        exact = model("gpt2").run(TEXT, ["pattern.0"])["pattern.0"][0, 3, 4].numpy()
        assert (np.frombuffer(get(server, "exact/0/self/attention/0/3/4"), "<f4") == exact).all()
        for path, told in (
            ("chunk/a/b", "no chunk"),
            ("exact/0/self/attention/0/3/400", "no query"),
            ("tea", "nothing at"),
            ("../../etc", "nothing at"),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                get(server, path)
            assert error.value.code == 404
            assert told in error.value.read().decode()
    with pytest.raises(urllib.error.URLError):
        get(server, "header.json")


def test_the_server_refuses_other_hosts(large):
    with large.serve() as server:
        asked = urllib.request.Request(server.url + "header.json", headers={"Host": "example.org"})
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(asked, timeout=20)
        assert error.value.code == 403
        with pytest.raises(PellucidError, match=f"Port {server.port}"):
            large.serve(port=server.port)


def test_a_view_without_a_model_has_no_exact_weights():
    with text_view(model("gpt2"), TEXT).serve() as server, pytest.raises(urllib.error.HTTPError) as error:
        get(server, "exact/0/self/attention/0/0/0")
    assert "no model behind" in error.value.read().decode()


def test_blocks_of_encoder_decoders_are_live_too(monkeypatch):
    monkeypatch.setattr(scene, "LARGEST", 10)
    opened = model("bart")
    view = head_view(opened, TEXT, target="a dog runs")
    run = opened.run(opened.tokenize(TEXT, target="a dog runs"), ["cross.pattern.3"])
    exact = run["cross.pattern.3"][0, 1].double().numpy()
    assert block(view, "cross")["layers"] == [0, 1, 2, 3]
    assert np.abs(head_codes(view, 3, 1, name="cross")[0] / 255 - np.sqrt(exact)).max() <= 0.5 / 255 + 1e-6
