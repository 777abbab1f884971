"""The store: rows on disk that are those of a sweep, whoever wrote them, and files that are named when damaged."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pellucid.collect.build import build_store
from pellucid.collect.found import facts_to_json
from pellucid.collect.store import ABOUT, Store
from pellucid.collect.sweep import sweep
from pellucid.corpus import Corpus, Sentence
from pellucid.errors import SweepError
from pellucid.model.sites import Site
from tests.collect.sweeping import Rows, files_of, in_order, reader, stories
from tests.collect.test_words import TRANSLATED

SMALL = {"token_budget": 150, "shard_tokens": 200, "threads": 1}
SITES = ("resid.1", "heads.2", "neurons.0")


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def swept():
    return in_order(sweep(reader("bert"), stories(30), Rows(SITES, ("upos", "depth")), **SMALL))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A whole store in float32; tests that change it copy it first."""
    folder = tmp_path_factory.mktemp("stores") / "built"
    return build_store(reader("bert"), stories(30), folder, SITES, dtype="float32", **SMALL)


def told(column) -> list[str | None]:
    """A column of texts, None where there is none (which pandas writes in several ways)."""
    return [value if isinstance(value, str) else None for value in column]


def copied(store: Store, folder: Path) -> Path:
    shutil.copytree(store.folder, folder)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rows_are_those_of_a_sweep(tmp_path, swept, dtype):
    store = build_store(reader("bert"), stories(30), tmp_path / "s", SITES, dtype=dtype, **SMALL)
    assert len(store.entries) > 3
    for site in SITES:
        expected = torch.from_numpy(swept[site]).to(getattr(torch, dtype))
        layer = store.layer(site)
        assert layer.dtype == expected.dtype
        assert torch.equal(layer, expected), site
        width = store.width(site)
        for unit in (0, 7, width - 1):
            assert torch.equal(store.unit(site, unit), expected[:, unit])
        for start, stop in ((0, 0), (0, 5), (13, 120), (store.rows - 3, store.rows), (0, store.rows)):
            assert torch.equal(store.slice(site, start, stop), expected[start:stop])
        parts = [store.shard(entry, site) for entry in store.entries]
        assert torch.equal(torch.cat(parts), expected)
    assert store.rows == len(swept["ordinal"])
    assert store.missing == ()
    store.verify()


def test_what_is_told_about_a_row_belongs_to_it(built, swept):
    words = built.words()
    corpus = list(stories(30))
    places = list(zip(words["sentence"], words["position"], strict=True))
    assert places == [(n, w) for n, each in enumerate(corpus) for w in range(len(each.spans))]
    assert words["row"].tolist() == list(range(built.rows))
    assert words["word"].tolist() == [corpus[n].words[w] for n, w in places]
    assert words["upos"].tolist() == [corpus[n].labels["upos"][w] for n, w in places] == swept["upos"]
    assert words["depth"].tolist() == [corpus[n].facts["depth"] for n, _ in places]
    assert words["sentence_id"].tolist() == [corpus[n].id for n, _ in places]
    assert words["document"].tolist() == [corpus[n].document for n, _ in places]
    assert words["group"].tolist() == swept["group"].tolist()
    assert told(words["number"]) == [corpus[n].labels["number"][w] for n, w in places]


def test_columns_are_chosen_by_name(built):
    assert list(built.words(["word", "upos"]).columns) == ["word", "upos"]
    assert built.words(["upos"])["upos"].tolist() == built.words()["upos"].tolist()
    with pytest.raises(SweepError, match=r"The words of this store have no nonsense; they have row, sentence"):
        built.words(["word", "nonsense"])


def test_a_label_that_only_some_sentences_carry(tmp_path):
    one = Sentence.of_words(["a", "dog"], id="1", labels={"tag": ("X", "Y")})
    other = Sentence.of_words(["a", "cat"], id="2", facts={"kind": "k"})
    store = build_store(reader("gpt2"), Corpus.of([one, other]), tmp_path / "s", "resid.0", shard_tokens=2)
    assert len(store.entries) == 2
    words = store.words(["tag", "kind"])
    assert told(words["tag"]) == ["X", "Y", None, None]
    assert told(words["kind"]) == [None, None, "k", "k"]


def test_words_that_have_no_token_have_no_row(tmp_path):
    made = [Sentence.of_words(["the", "~~", "dog"], id="1"), Sentence.of_words(["~"], id="2"), "a cat"]
    for shard_tokens in (1, 1000):
        store = build_store(
            reader("bert"), Corpus.of(made), tmp_path / str(shard_tokens), "resid.1", shard_tokens=shard_tokens
        )
        assert store.words()["word"].tolist() == ["the", "dog", "a", "cat"]
        assert store.words()["row"].tolist() == [0, 2, 4, 5]
        swept = in_order(sweep(reader("bert"), Corpus.of(made), Rows(("resid.1",))))
        np.testing.assert_allclose(store.layer("resid.1").float(), swept["resid.1"], atol=1e-2)
        store.verify()


def test_subwords_pairs_and_targets_are_kept_with_their_words(tmp_path):
    model = reader("bert")
    pair = Sentence.of_words(["old", "dog"], second=Sentence.of_words(["red", "cat"]), joint=True)
    words = build_store(model, Corpus.of([pair]), tmp_path / "pair", "resid.0").words()
    assert words["word"].tolist() == ["old", "dog", "red", "cat"]
    store = build_store(model, Corpus.of(["old dog"]), tmp_path / "all", "resid.0", pooling="all", special=True)
    assert told(store.words()["word"])[0] is None
    assert told(store.words()["word"])[-1] is None
    assert set(store.words()["word"][1:-1]) == {"old", "dog"}
    target = build_store(reader("t5"), Corpus.of(TRANSLATED), tmp_path / "t5", "decoder.resid.1", side="target")
    assert target.words()["word"].tolist() == [word for each in TRANSLATED for word in each.second.words]
    assert target.words()["sentence_id"].unique().tolist() == ["t0", "t1", "t2"]


def test_two_models_share_a_store(tmp_path):
    models = [reader("gpt2"), reader("bert", size=70)]
    store = build_store(models, stories(12), tmp_path / "s", "resid.1", dtype="float32", **SMALL)
    swept = in_order(sweep(models, stories(12), Rows(("resid.1",)), **SMALL))
    assert store.keys == ("0:resid.1", "1:resid.1")
    for key in store.keys:
        assert torch.equal(store.layer(key), torch.from_numpy(swept[key]))


def test_sentences_are_kept_whole(built):
    corpus = list(stories(30))
    found = {number: each for entry in built.entries for number, each in built.sentences(entry).items()}
    assert found == dict(enumerate(corpus))


# -- several writers -------------------------------------------------------------------------------------------------


def part_of(folder: str, part: tuple[int, int], begin) -> None:
    begin.wait()
    build_store(reader("bert"), stories(30), folder, SITES, dtype="float32", part=part, **SMALL)


def test_two_writers_at_once_make_the_same_store(tmp_path, built):
    context = multiprocessing.get_context("fork")
    for parts in (((0, 2), (1, 2)), ((0, 1), (0, 1))):
        folder, begin = tmp_path / str(parts), context.Barrier(2)
        team = [context.Process(target=part_of, args=(str(folder), part, begin)) for part in parts]
        for process in team:
            process.start()
        for process in team:
            process.join()
        assert [process.exitcode for process in team] == [0, 0]
        assert files_of(folder) == files_of(built.folder)


def test_a_part_leaves_the_other_shards_to_others(tmp_path, built):
    store = build_store(reader("bert"), stories(30), tmp_path / "s", SITES, dtype="float32", part=(1, 3), **SMALL)
    assert [entry.shard for entry in store.entries] == [e.shard for e in built.entries if e.shard % 3 == 1]
    assert set(store.missing) == {e.shard for e in built.entries if e.shard % 3 != 1}
    with pytest.raises(SweepError, match=r"shards are not there \(0, 2, 3"):
        store.verify()
    for number in (0, 2):
        store = build_store(
            reader("bert"), stories(30), tmp_path / "s", SITES, dtype="float32", part=(number, 3), **SMALL
        )
    assert files_of(store.folder) == files_of(built.folder)
    for part in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(SweepError, match="means nothing"):
            build_store(reader("bert"), stories(30), tmp_path / "t", SITES, part=part)


def test_other_settings_are_refused(tmp_path, built):
    folder = copied(built, tmp_path / "s")
    before = files_of(folder)
    base = {"dtype": "float32", **SMALL}
    for what, models, corpus, sites, options in (
        ("models", reader("bert", seed=1), stories(30), SITES, {}),
        ("corpus", reader("bert"), stories(29), SITES, {}),
        ("sites", reader("bert"), stories(30), SITES[:2], {}),
        ("precision", reader("bert"), stories(30), SITES, {"dtype": "float16"}),
        ("reading", reader("bert"), stories(30), SITES, {"pooling": "last"}),
        ("token budget", reader("bert"), stories(30), SITES, {"token_budget": 99}),
        ("shard size", reader("bert"), stories(30), SITES, {"shard_tokens": 99}),
    ):
        with pytest.raises(SweepError, match=rf"holds a store with another setting \({what}\); use the same"):
            build_store(models, corpus, folder, sites, **{**base, **options})
    stream = stories(30).filter(lambda _: True)
    with pytest.raises(SweepError, match="has no fingerprint, so the store"):
        build_store(reader("bert"), stream, folder, SITES, **base)
    assert files_of(folder) == before


def test_folders_with_other_things_are_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "plan.json").write_text("mine")
    with pytest.raises(SweepError, match="is not empty and holds no store; choose another folder"):
        build_store(reader("bert"), stories(5), tmp_path / "s")
    assert files_of(tmp_path / "s") == {"plan.json": b"mine"}
    with pytest.raises(SweepError, match="There is no folder"):
        build_store(reader("bert"), stories(5), tmp_path / "no" / "s")
    with pytest.raises(SweepError, match=r"A store cannot hold 'int8'; use one of float16, bfloat16, float32"):
        build_store(reader("bert"), stories(5), tmp_path / "t", dtype="int8")
    with pytest.raises(SweepError, match="There is no store in"):
        Store.open(tmp_path)


def test_halves_of_files_are_no_hindrance_and_old_ones_are_removed(tmp_path, built):
    folder = copied(built, tmp_path / "s")
    (folder / ABOUT).unlink()
    (folder / "plan.json").unlink()
    for half in (
        folder / f".{ABOUT}.7.part",
        folder / f"..{ABOUT}.7.part.7.part",
        folder / "shards" / ".000001.json.7.part",
    ):
        half.write_bytes(b"half")
        os.utime(half, (0, 0))
    young = folder / "shards" / ".000002.json.8.part"
    young.write_bytes(b"half")
    build_store(reader("bert"), stories(30), folder, SITES, dtype="float32", **SMALL)
    young.unlink()  # somebody may have been writing it
    assert files_of(folder) == files_of(built.folder)


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["safetensors", "parquet", "sentences.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "flip"])
def test_verify_names_the_damaged_file(tmp_path, built, ending, damage):
    folder = copied(built, tmp_path / "s")
    file = folder / "shards" / f"000002.{ending}"
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        content[len(content) // 2] ^= 4
        file.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    store = Store.open(folder)
    with pytest.raises(SweepError, match=rf"000002\.{ending}' is damaged or missing"):
        store.verify()
    if damage == "flip":
        return  # only `verify` reads every byte
    reads = {
        "safetensors": [
            lambda: store.layer("resid.1"),
            lambda: store.unit("heads.2", 3),
            lambda: store.slice("resid.1", 0, store.rows),
        ],
        "parquet": [store.words],
        "sentences.json": [lambda: store.sentences(store.entries[2])],
    }
    for read in reads[ending]:
        with pytest.raises(SweepError, match=rf"000002\.{ending}' is damaged or missing"):
            read()


def test_a_shard_that_was_deleted_is_made_again(tmp_path, built):
    folder = copied(built, tmp_path / "s")
    for file in (folder / "shards").glob("000001.*"):
        file.unlink()
    assert Store.open(folder).missing == (1,)
    build_store(reader("bert"), stories(30), folder, SITES, dtype="float32", **SMALL)
    assert files_of(folder) == files_of(built.folder)


def test_a_damaged_manifest_is_named(tmp_path, built):
    folder = copied(built, tmp_path / "s")
    (folder / "shards" / "000003.json").write_text('{"shard": 3')
    with pytest.raises(SweepError, match=r"000003\.json' is damaged or missing"):
        Store.open(folder)
    (folder / ABOUT).write_text(json.dumps({**json.loads((folder / ABOUT).read_text()), "format": 7}))
    with pytest.raises(SweepError, match="has format 7; this Pellucid reads 1"):
        Store.open(folder)
    (folder / ABOUT).write_text("[]")
    with pytest.raises(SweepError, match=r"store\.json' is damaged"):
        Store.open(folder)


def test_what_a_store_does_not_hold_is_said(built):
    with pytest.raises(SweepError, match=r"does not hold 'resid\.2'; it holds neurons\.0, resid\.1, heads\.2"):
        built.layer("resid.2")
    with pytest.raises(SweepError, match=r"resid\.1 has units 0 to 39; there is no unit 40"):
        built.unit("resid.1", 40)
    with pytest.raises(SweepError, match="there is no unit -1"):
        built.unit("resid.1", -1)
    with pytest.raises(SweepError, match="there is no slice from 5 to 4"):
        built.slice("resid.1", 5, 4)
    with pytest.raises(SweepError, match=f"there is no slice from 0 to {built.rows + 1}"):
        built.slice("resid.1", 0, built.rows + 1)


def test_a_value_that_the_type_cannot_hold_is_refused(tmp_path, monkeypatch):
    model = reader("bert")
    real = type(model).run

    def run(self, *arguments, **options):
        reduce = options["reduce"]
        return real(
            self, *arguments, **{**options, "reduce": lambda site, t: reduce(site, t * 1e5 if site.layer == 2 else t)}
        )

    monkeypatch.setattr(type(model), "run", run)
    with pytest.raises(SweepError, match=r"resid\.2 has values that float16 cannot hold \(over 65,504"):
        build_store(model, stories(5), tmp_path / "s", "resid.*")
    assert Store.open(tmp_path / "s").entries == ()
    build_store(model, stories(5), tmp_path / "t", "resid.*", dtype="bfloat16").verify()


def test_a_store_without_shards_yet_is_empty_and_says_so(tmp_path, built):
    folder = copied(built, tmp_path / "s")
    for file in (folder / "shards").iterdir():
        file.unlink()
    store = Store.open(folder)
    assert store.layer("resid.1").shape == (0, 40)
    assert store.unit("resid.1", 0).shape == (0,)
    assert store.rows == store.bytes == 0
    with pytest.raises(SweepError, match="has no shard yet"):
        store.words()


def test_a_store_tells_what_it_is(built):
    assert built.models[0].fingerprint == reader("bert").fingerprint
    shards = sum(file.stat().st_size for file in (built.folder / "shards").iterdir() if "000" in file.name)
    entries = sum((built.folder / "shards" / f"{entry.name}.json").stat().st_size for entry in built.entries)
    assert built.bytes == shards - entries
    assert f"{built.rows:,} rows, neurons.0, resid.1, heads.2, float32" in repr(built)


def test_layers_are_counted_and_not_spelled(built):
    """Ten layers on, the order of the alphabet would put resid.10 before resid.2."""
    sites = [Site("resid", layer) for layer in range(12)]
    facts = replace(built.models[0], sites=tuple(sites), sizes={str(site): (4,) for site in sites})
    about = {
        **built.about,
        "models": [facts_to_json(facts)],
        "widths": {str(site): 4 for site in sorted(sites, key=str)},
    }
    assert Store(built.folder, about, ()).keys == tuple(f"resid.{layer}" for layer in range(12))
