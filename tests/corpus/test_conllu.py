"""CoNLL-U: words, spans, documents, multiword tokens, empty nodes, and lines that are broken."""

from __future__ import annotations

import pytest

from pellucid.corpus import Arc, Corpus
from pellucid.corpus.readers.conllu import shared_out
from pellucid.errors import CorpusError

FIRST = """# newdoc id = tale
# sent_id = s1
# genre = fiction
# text = Don't go, Ann.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\tMood=Imp\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\tMood=Imp|VerbForm=Fin\t0\troot\t_\tSpaceAfter=No
3.1\tgone\tgo\tVERB\t_\t_\t_\t_\t_\t_
4\t,\t,\tPUNCT\t,\t_\t5\tpunct\t_\t_
5\tAnn\tAnn\tPROPN\tNNP\tNumber=Sing\t3\tvocative\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\t.\t_\t3\tpunct\t_\t_
"""


def row(number, form, head=0, relation="root", misc="_", lemma="_"):
    return f"{number}\t{form}\t{lemma}\tX\t_\t_\t{head}\t{relation}\t_\t{misc}\n"


@pytest.fixture
def read(tmp_path):
    def reader(content):
        path = tmp_path / "t.conllu"
        path.write_bytes(content.encode("utf-8"))
        return Corpus.conllu(path)

    return reader


def test_a_whole_sentence(read):
    corpus = read(FIRST)
    (sentence,) = corpus
    assert (sentence.id, sentence.document, sentence.text) == ("s1", "tale", "Don't go, Ann.")
    assert sentence.words == ("Do", "n't", "go", ",", "Ann", ".")
    assert sentence.spans == ((0, 2), (2, 5), (6, 8), (8, 9), (10, 13), (13, 14))
    assert sentence.facts == {"genre": "fiction"}
    assert sentence.labels == {
        "upos": ("AUX", "PART", "VERB", "PUNCT", "PROPN", "PUNCT"),
        "xpos": ("VB", "RB", "VB", ",", "NNP", "."),
        "lemma": ("do", "not", "go", ",", "Ann", "."),
        "deprel": ("aux", "advmod", "root", "punct", "vocative", "punct"),
        "feats.Mood": ("Imp", None, "Imp", None, None, None),
        "feats.VerbForm": (None, None, "Fin", None, None, None),
        "feats.Number": (None, None, None, None, "Sing", None),
    }
    assert sentence.arcs == (
        Arc(0, 2, "aux"),
        Arc(1, 2, "advmod"),
        Arc(2, -1, "root"),
        Arc(3, 4, "punct"),
        Arc(4, 2, "vocative"),
        Arc(5, 2, "punct"),
    )
    assert corpus.unit == "documents from '# newdoc'"


def test_windows_line_ends_change_nothing(read):
    without_text = FIRST.replace("# text = Don't go, Ann.\n", "")
    assert list(read(without_text.replace("\n", "\r\n"))) == list(read(FIRST))


def test_text_is_rebuilt_where_it_is_absent_or_wrong(read):
    body = row(1, "Go", misc="SpaceAfter=No") + row(2, "!", 1, "punct") + row(3, "Now", 1, "x")
    absent, wrong, spaced = read(body + "\n# text = Other words\n" + body + "\n# text = Go!   Now\n" + body)
    assert absent.text == wrong.text == "Go! Now"
    assert spaced.text == "Go!   Now"
    assert spaced.words == ("Go", "!", "Now")


def test_a_multiword_token_rebuilds_its_surface(read):
    body = (
        "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
        + row(1, "de")
        + row(2, "le", 1, "det")
        + row(3, ".", 1, "punct")
    )
    (sentence,) = read(body)
    assert sentence.text == "du."
    assert sentence.words == ("d", "u", ".")
    assert sentence.labels["form"] == ("de", "le", ".")


@pytest.mark.parametrize(
    ("surface", "forms", "parts"),
    [
        ("can't", ["ca", "n't"], ["ca", "n't"]),
        ("CAN'T", ["ca", "n't"], ["CA", "N'T"]),
        ("della", ["di", "la"], ["del", "la"]),
        ("dámelo", ["da", "me", "lo"], ["dá", "me", "lo"]),
        ("du", ["de", "le"], ["d", "u"]),
        ("zum", ["zu", "dem"], ["zu", "m"]),
        ("abcdef", ["xxxx", "yy"], ["abcd", "ef"]),
        ("abc", ["xxxxxxxxxx", "y"], ["ab", "c"]),
        ("abc", ["x", "yyyyyyyyyy"], ["a", "bc"]),
        ("á", ["a", "a"], ["á", "á"]),
        ("aaa", ["aaa", "b"], ["aa", "a"]),
    ],
)
def test_a_multiword_token_is_shared_out(surface, forms, parts):
    found = shared_out(surface, forms, 10)
    assert [surface[start - 10 : stop - 10] for start, stop in found] == parts


def test_documents_and_ids(read):
    one = row(1, "a") + "\n"
    corpus = read(
        one + "# newdoc\n# sent_id = x\n" + one + "# sent_id = x\n" + one + "# newdoc id = d\n\n# sent_id = y\r\n" + one
    )
    assert [(s.id, s.document) for s in corpus] == [("1", "1"), ("x", "document 1"), ("x#2", "document 1"), ("y", "d")]
    plain = read(one + one + "\n\n")
    assert [(s.id, s.document) for s in plain] == [("1", "1"), ("2", "2")]
    assert plain.unit == "each sentence is its own document"


def test_underscores_and_missing_trees(read):
    (sentence,) = read(row(1, "_", "_", "_", lemma="_") + row(2, "b", "_", "_"))
    assert sentence.words == ("_", "b")
    assert sentence.labels["lemma"] == ("_", None)
    assert sentence.labels["deprel"] == (None, None)
    assert sentence.arcs == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row(1, "a") + "2\tb\tb\n", "t.conllu, line 2: CoNLL-U has 10 columns separated by tabs, this line has 3"),
        ("# text = a\n\n" + row(1, "a") + row(3, "b", 1), "line 4: word 2 was expected here, and word 3 was found"),
        (row(1, "a") + row(2, "b", 7), "line 2: the head of word 2 is 7, but the sentence has words 1 to 2"),
        (row(1, "a") + row(2, "b", 2), "line 2: the head of word 2 is 2"),
        (row(1, "a") + "\n" + row(1, "a") + row("x", "b", 1), "line 4: "),
        (row(1, "a", "y"), "line 1: "),
        (row("2-1", "ab", "_", "_") + row(1, "a"), "line 1: .*'2-1'"),
        (row("1-2", "x", "_", "_") + row(1, "a") + row("2-3", "y", "_", "_"), "line 3: this range of words runs into"),
        (row("1-2", "ab", "_", "_"), "line 1: "),
        ("# only a comment\n", "holds no usable sentence"),
    ],
)
def test_broken_lines_are_named(read, content, message):
    with pytest.raises(CorpusError, match=message):
        list(read(content))
