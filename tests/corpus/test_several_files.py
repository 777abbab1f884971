"""Several files named together: FIRST+SECOND and FIRST+SECOND+LABELS."""

from __future__ import annotations

import pytest

from pellucid.corpus import Corpus
from pellucid.errors import CorpusError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with two lines of everything, one level below the working folder."""
    monkeypatch.chdir(tmp_path)
    inside = tmp_path / "data"
    inside.mkdir()
    for name, lines in {
        "s.en": "a dog\nthe cats",
        "s.de": "ein Hund\ndie Katzen",
        "s.tags": "D N\nD N",
        "s.nli": "yes\nno",
    }.items():
        (inside / name).write_text(lines + "\n", encoding="utf-8")
    return inside


def test_translations_pairs_and_tags_open_by_one_name(folder):
    first, second, tags, labels = (folder / name for name in ("s.en", "s.de", "s.tags", "s.nli"))
    for joined, whole in (
        (Corpus.open(f"{first}+{second}", format="parallel"), Corpus.parallel(first, second)),
        (Corpus.open(f"{first}+{second}", format="pairs"), Corpus.pairs(first, second)),
        (Corpus.open(f"{first}+{second}+{labels}", format="pairs"), Corpus.pairs(first, second, labels)),
        (Corpus.open(f"{first}+{tags}", format="tagged", label="pos"), Corpus.tagged(first, tags, label="pos")),
    ):
        assert list(joined) == list(whole)
        assert joined.fingerprint == whole.fingerprint
    assert Corpus.open(f"{first}+{second}+{labels}", format="pairs", label="relation").facts() == ("relation",)
    apart = Corpus.open(f"{first}+{second}", format="pairs", labels_path=labels)
    assert list(apart) == list(Corpus.pairs(first, second, labels))


def test_a_later_file_is_found_where_it_is_named_or_beside_the_first(folder):
    beside = Corpus.open("data/s.en+s.de", format="parallel")
    assert [s.second.text for s in beside] == ["ein Hund", "die Katzen"]
    (folder.parent / "s.de").write_text("un\ndeux\n", encoding="utf-8")  # now it is where it is named
    assert [s.second.text for s in Corpus.open("data/s.en+s.de", format="parallel")] == ["un", "deux"]


def test_a_plus_in_a_name_is_a_plus(folder):
    odd = folder / "c++.en"
    odd.write_text("a dog\nthe cats\n", encoding="utf-8")
    assert Corpus.open(odd, format="parallel", second_path=folder / "s.de").info().sentences == 2
    for name, line in (("d+e.in", "a dog\n"), ("d+e.label", "D N\n")):
        (folder / name).write_text(line, encoding="utf-8")
    assert Corpus.open(folder / "d+e.in", format="tagged").labels() == ("label",)
    with pytest.raises(CorpusError, match=r"There is no file .*s\.en\+s\.de"):
        Corpus.open("data/s.en+s.de", format="parallel", second_path=folder / "s.de")
    (folder / "a+b.txt").write_text("a dog\n", encoding="utf-8")
    assert Corpus.open(folder / "a+b.txt").info().sentences == 1


def test_what_is_wrong_is_said(folder):
    with pytest.raises(CorpusError, match=r"names 3 files, and the format parallel reads at most 2.*second_path"):
        Corpus.open("data/s.en+s.de+s.nli", format="parallel")
    with pytest.raises(CorpusError, match=r"There is no file s\.fr"):
        Corpus.open("data/s.en+s.fr", format="parallel")
    with pytest.raises(CorpusError, match="give their format as well: tagged, pairs, parallel"):
        Corpus.open("data/s.en+s.de")
    with pytest.raises(CorpusError, match="needs a second file"):
        Corpus.open("data/s.en", format="parallel")
