"""The readers of lines, tables, JSON lines, SQuAD and data sets: what they read, and what they refuse."""

from __future__ import annotations

import json

import pytest

from pellucid.corpus import Corpus
from pellucid.errors import CorpusError


@pytest.fixture
def put(tmp_path):
    """Write a file (text or bytes) and give its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def shown(corpus):
    return [(s.id, s.document, s.text) for s in corpus]


# Text


def test_lines_with_blank_lines_between_documents(put):
    path = put("a.txt", "\n\none\n two \n\n\nthree\n\n\n")
    corpus = Corpus.text(path)
    assert shown(corpus) == [("3", "document 1", "one"), ("4", "document 1", "two"), ("7", "document 2", "three")]
    assert corpus.unit == "documents between blank lines"


def test_lines_without_gaps_are_their_own_documents(put):
    corpus = Corpus.text(put("a.txt", "\none\ntwo\n\n\n"))
    assert shown(corpus) == [("2", "2", "one"), ("3", "3", "two")]
    assert corpus.unit == "each sentence is its own document"


def test_windows_line_ends_byte_order_mark_and_odd_separators(put):
    corpus = Corpus.text(put("a.txt", b"\xef\xbb\xbfone\r\n\r\ntwo \xe2\x80\xa8 halves\x0b.\r\n"))
    assert [text for _, _, text in shown(corpus)] == ["one", "two \u2028 halves\x0b."]


def test_windows_line_ends_leave_nothing_behind(put):
    path = put("a.txt", "one\r\ntwo\r\n")
    assert [s.text for s in Corpus.text(path, unit="document")] == ["one\ntwo"]
    assert [s.text for s in Corpus.tagged(path, path)] == ["one", "two"]


def test_paragraphs_and_whole_files(put):
    first, second = put("a.txt", "one\n two\n\nthree\n"), put("b.txt", "four\n\nfive\n")
    assert shown(Corpus.text(first, unit="paragraph")) == [("1", "1", "one two"), ("4", "4", "three")]
    several = Corpus.text(first, second, unit="paragraph")
    assert shown(several)[1:3] == [("1:4", "1", "three"), ("2:1", "2", "four")]
    assert several.unit == "each file is a document"
    assert shown(Corpus.text(first, second, unit="document")) == [
        ("1", "1", "one\n two\n\nthree"),
        ("2", "2", "four\n\nfive"),
    ]
    lines = Corpus.text(first, second)
    assert [(i, d) for i, d, _ in shown(lines)] == [
        ("1:1", "1:document 1"),
        ("1:2", "1:document 1"),
        ("1:4", "1:document 2"),
        ("2:1", "2:document 1"),
        ("2:3", "2:document 2"),
    ]
    with pytest.raises(CorpusError, match="'word'; the units are line, paragraph, document"):
        Corpus.text(first, unit="word")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", "", "empty.txt is empty"),
        ("blank.txt", "\n  \n\n", "blank.txt holds no usable sentence"),
        ("bad.txt", b"fine\nno \xff\n", "bad.txt, line 2: byte 4 of the line is not UTF-8"),
    ],
)
def test_files_without_text_are_refused(put, name, content, message):
    with pytest.raises(CorpusError, match=message):
        list(Corpus.text(put(name, content)))


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"There is no file .*absent\.txt"):
        Corpus.text(tmp_path / "absent.txt")
    with pytest.raises(CorpusError, match="is a folder: name the file"):
        Corpus.conllu(tmp_path)


# Words with labels beside them


def test_tagged_words(put):
    words, labels = put("x.in", "The  dog\n\nA cat sat\n\n"), put("x.label", "D N\r\n\r\nD N V\r\n")
    corpus = Corpus.tagged(words, labels, label="pos")
    assert [(s.id, s.document, s.words, s.labels) for s in corpus] == [
        ("1", "document 1", ("The", "dog"), {"pos": ("D", "N")}),
        ("3", "document 2", ("A", "cat", "sat"), {"pos": ("D", "N", "V")}),
    ]


@pytest.mark.parametrize(
    ("words", "labels", "message"),
    [
        ("a b\nc d\n", "X Y\nX\n", "Line 2 has 2 words in .*x.in but 1 labels in .*x.label"),
        ("a b\n\nc\n", "X Y\nZ\nZ\n", "Line 2 has 0 words .* but 1 labels"),
        ("a\nb\nc\n", "X\nY\n", "x.in has 3 lines and .*x.label has 2 lines"),
        ("a\n", "X\nY\nZ\n\n", "x.in has 1 lines and .*x.label has 3 lines"),
    ],
)
def test_labels_out_of_step(put, words, labels, message):
    with pytest.raises(CorpusError, match=message):
        list(Corpus.tagged(put("x.in", words), put("x.label", labels)))


# Pairs and translations


def test_pairs_with_labels(put):
    files = put("s1", "A dog .\nA cat .\n\n"), put("s2", "Dogs\nCats\n"), put("l", "yes\nno\n")
    corpus = Corpus.pairs(*files, label="entails")
    found = list(corpus)
    assert [(s.text, s.second.text, s.facts, s.joint) for s in found] == [
        ("A dog .", "Dogs", {"entails": "yes"}, True),
        ("A cat .", "Cats", {"entails": "no"}, True),
    ]
    assert len({s.second.id for s in found} | {s.id for s in found}) == 4
    assert Corpus.pairs(*files[:2]).facts() == ()


def test_translations_are_targets(put):
    found = list(Corpus.parallel(put("a.en", "one\ntwo\n"), put("a.de", "eins\nzwei\n")))
    assert [(s.text, s.second.text, s.joint) for s in found] == [("one", "eins", False), ("two", "zwei", False)]


def test_pairs_that_do_not_match(put):
    first = put("a", "one\ntwo\nthree\n")
    with pytest.raises(CorpusError, match=r"a has 3 lines and .*b has 2 lines"):
        list(Corpus.parallel(first, put("b", "eins\nzwei\n")))
    holed = put("c", "eins\n\ndrei\n")
    with pytest.raises(CorpusError, match="c, line 2 is empty, but its pair is not"):
        list(Corpus.pairs(first, holed))
    assert [s.id for s in Corpus.pairs(first, holed, empty="skip")] == ["1", "3"]
    with pytest.raises(CorpusError, match="'drop'; choose refuse, skip"):
        Corpus.pairs(first, holed, empty="drop")


# Tables


def test_a_table_with_a_header(put):
    path = put("t.tsv", '\ufefftext\tlabel\tsource\r\n"Good" day\t1\tweb\r\nBad\t0\t\r\n\r\n')
    assert [(s.id, s.text, s.facts) for s in Corpus.table(path)] == [
        ("2", '"Good" day', {"label": "1", "source": "web"}),
        ("3", "Bad", {"label": "0"}),
    ]
    assert [s.facts for s in Corpus.table(path, labels=["label"])] == [{"label": "1"}, {"label": "0"}]
    assert [s.facts for s in Corpus.table(path, labels=[])] == [{}, {}]


def test_quoted_fields_may_hold_anything(put):
    path = put("t.csv", 'id,body,who\nx,"tab\there, comma and ""quotes""\nand a new line",a\nx,plain,b\ny,more,a\n')
    corpus = Corpus.table(path, text="body", id="id", document="who")
    assert shown(corpus) == [
        ("x", "a", 'tab\there, comma and "quotes"\nand a new line'),
        ("x#2", "b", "plain"),
        ("y", "a", "more"),
    ]
    assert corpus.unit == "documents by the field 'who'"
    assert [s.id for s in corpus.shard(0, 2)] == ["x", "y"], "documents that stand apart stay whole"
    quoted = put("q.tsv", 'text\tn\n"a\tb"\t1\n')
    assert [s.text for s in Corpus.table(quoted, quoted=True)] == ["a\tb"]


def test_tables_without_header_and_pairs_in_tables(put):
    path = put("t.tsv", "A man\tA person\tyes\nA dog\tA cat\tno\n")
    found = list(Corpus.table(path, columns=["premise", "hypothesis", "y"], text="premise", second="hypothesis"))
    assert [(s.id, s.text, s.second.text, s.joint, s.facts) for s in found] == [
        ("1", "A man", "A person", True, {"y": "yes"}),
        ("2", "A dog", "A cat", True, {"y": "no"}),
    ]
    other = Corpus.table(path, columns=["text", "de", "y"], second="de", joint=False, delimiter="\t")
    assert not any(s.joint for s in other)
    semicolons = put("s.csv", "text;n\na, b;1\n")
    assert [s.text for s in Corpus.table(semicolons, delimiter=";")] == ["a, b"]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,y\na,1\nb\n", {}, "t.csv, line 3 has 1 columns, but the table has 2"),
        ("text,y\na,1,2\n", {}, "line 2 has 3 columns"),
        ("body,y\na,1\n", {}, "no field 'text'; it has body, y. If the file has no line of column names"),
        ("text,y\na,1\n", {"labels": ["z"]}, "no field 'z'; it has text, y"),
        ("text,y\na,1\n", {"labels": "y"}, r"given as a list: \['y'\]"),
        ("text,y\na,1\n", {"columns": ["a", "b"]}, "list of columns has no field 'text'; it has a, b"),
        ("text,text\na,1\n", {}, "names the column 'text' twice"),
        ('text,y\nfine,0\n"a,1\nb,2\n', {}, "row that begins on line 3 cannot be read"),
        ("text,y\n ,1\n", {}, "line 2 has no text"),
        ("text,y\n", {}, "holds no usable sentence"),
        ("text,y\na,1\n", {"delimiter": "::"}, "one character, not by '::'"),
        ("text,y\na,1\n", {"empty": "x"}, "choose refuse, skip"),
    ],
)
def test_broken_tables(put, content, options, message):
    with pytest.raises(CorpusError, match=message):
        list(Corpus.table(put("t.csv", content), **options))


def test_rows_without_text_can_be_skipped(put):
    assert [s.id for s in Corpus.table(put("t.csv", "text,y\n,1\nb,2\n"), empty="skip")] == ["3"]


# JSON lines


def lines(*records):
    return "\n".join(json.dumps(record) for record in records) + "\n\n"


def test_json_lines_with_words_and_labels(put):
    path = put(
        "a.jsonl",
        lines(
            {"tokens": ["A", "dog"], "pos": ["D", "N"], "ids": [3, None], "y": 1, "ok": True, "meta": {"a": 1}},
            {"tokens": ["Cats"], "pos": ["N"], "ids": [5], "y": None, "ok": False, "meta": {}},
        ),
    )
    found = list(Corpus.jsonl(path, words="tokens"))
    assert [(s.text, s.labels, s.facts) for s in found] == [
        ("A dog", {"pos": ("D", "N"), "ids": ("3", None)}, {"y": "1", "ok": "true"}),
        ("Cats", {"pos": ("N",), "ids": ("5",)}, {"ok": "false"}),
    ]
    assert Corpus.jsonl(path, words="tokens", labels=["pos"]).labels() == ("pos",)


def test_json_lines_with_text_pairs_and_documents(put):
    path = put(
        "a.jsonl",
        lines({"text": " a b ", "h": "c", "doc": "d", "key": 9}, {"text": "x", "h": "y", "doc": "d", "key": 9}),
    )
    found = list(Corpus.jsonl(path, second="h", document="doc", id="key"))
    assert [(s.id, s.document, s.text, s.second.text) for s in found] == [
        ("9", "d", "a b", "c"),
        ("9#2", "d", "x", "y"),
    ]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ('{"text": "a"}\n{"text": "b"\n', {}, "a.jsonl, line 2 is not JSON"),
        ('["a"]\n', {}, "line 1 is a list, where a JSON object"),
        ('{"text": "a"}\n\n{"body": "b"}\n', {}, "line 3 has no field 'text'; it has body"),
        ('{"text": 5}\n', {}, "'text' should be text, and is a int"),
        ('{"words": "a b"}\n', {"words": "words"}, "should be a list of words, and is a str"),
        ('{"words": ["a", " "]}\n', {"words": "words"}, "a word without characters"),
        ('{"words": ["a"], "p": ["x", "y"]}\n', {"words": "words", "labels": ["p"]}, "1 words but 2 labels in 'p'"),
        ('{"text": "a", "p": ["x"]}\n', {"labels": ["p"]}, "name the list of words with `words`"),
        ('{"text": "a", "p": {}}\n', {"document": "p"}, "'p' should be a single value"),
        ('{"text": null}\n', {}, "has no text"),
    ],
)
def test_broken_json_lines(put, content, options, message):
    with pytest.raises(CorpusError, match=message):
        list(Corpus.jsonl(put("a.jsonl", content), **options))


# SQuAD


def squad(*questions, context="Rome is old."):
    return json.dumps({"data": [{"title": "Rome", "paragraphs": [{"context": context, "qas": list(questions)}]}]})


def test_squad(put):
    asked = {"id": "q1", "question": "What is old?", "answers": [{"text": "Rome", "answer_start": 0}]}
    none = {"id": "q1", "question": "Who?", "answers": [], "is_impossible": True}
    first, second = Corpus.squad(put("a.json", squad(asked, none)))
    assert (first.id, first.document, first.text, first.second.text) == ("q1", "Rome", "What is old?", "Rome is old.")
    assert first.joint
    assert first.facts == {"answer": "Rome", "answer_start": "0"}
    assert first.second.words == ("Rome", "is", "old", ".")
    assert (second.id, second.facts) == ("q1#2", {"impossible": "true"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [\n}', "a.json, line 2 is not JSON"),
        ('{"rows": []}', "has no 'data' as the SQuAD format wants it"),
        ("[1]", "has no 'data'"),
        ('{"data": []}', "no usable sentence"),
        ('{"data": [{"title": "x"}]}', "article 1 has no 'paragraphs'"),
        (squad({"id": "1"}), "paragraph 1, question 1 has no 'question'"),
        (squad({"id": "1", "question": " "}), "question 1 has no text"),
        (squad({"id": "1", "question": "?", "answers": [{"text": "old", "answer_start": 50}]}), "character 50, beyond"),
    ],
)
def test_broken_squad(put, content, message):
    with pytest.raises(CorpusError, match=message):
        list(Corpus.squad(put("a.json", content)))


# Data sets


def test_data_set_objects_with_class_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "words": datasets.Sequence(datasets.Value("string")),
            "pos": datasets.Sequence(datasets.ClassLabel(names=["D", "N"])),
            "y": datasets.ClassLabel(names=["bad", "good"]),
        }
    )
    rows = {"words": [["A", "dog"], ["Cats"]], "pos": [[0, 1], [1]], "y": [1, -1]}
    data = datasets.Dataset.from_dict(rows, features=features)
    corpus = Corpus.dataset(data, words="words")
    assert [(s.id, s.words, s.labels, s.facts) for s in corpus] == [
        ("1", ("A", "dog"), {"pos": ("D", "N")}, {"y": "good"}),
        ("2", ("Cats",), {"pos": ("N",)}, {}),
    ]
    assert corpus.fingerprint == Corpus.dataset(data, words="words").fingerprint is not None
    assert Corpus.dataset(data.to_iterable_dataset(), words="words").fingerprint is None
    both = datasets.DatasetDict({"train": data, "test": data.select([0])})
    assert len(list(Corpus.dataset(both, words="words", split="test"))) == 1
    with pytest.raises(CorpusError, match="several splits: name one of train, test"):
        Corpus.dataset(both, words="words")
    with pytest.raises(CorpusError, match="no split 'dev'; it has train, test"):
        Corpus.dataset(both, words="words", split="dev")
    with pytest.raises(CorpusError, match="row 1 has no field 'text'; it has words, pos, y"):
        Corpus.dataset(data)
    with pytest.raises(CorpusError, match="A int is no data set"):
        Corpus.dataset(5)


def test_local_data_sets(put, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = datasets.Dataset.from_dict({"text": ["one two", "three"], "y": [1, 0]})
    data.save_to_disk(str(tmp_path / "saved"))
    data.to_parquet(str(tmp_path / "a.parquet"))
    for corpus in (
        Corpus.dataset(tmp_path / "saved"),
        Corpus.open(tmp_path / "saved"),
        Corpus.open(tmp_path / "a.parquet"),
    ):
        assert [(s.text, s.facts) for s in corpus] == [("one two", {"y": "1"}), ("three", {"y": "0"})]
        assert corpus.fingerprint is not None
    with pytest.raises(CorpusError, match="cannot be opened"):
        Corpus.dataset("nobody/has-this-data-set")
    with pytest.raises(CorpusError, match=r"is not a data file; the kinds are \.parquet"):
        Corpus.dataset(put("a.xyz", "x"))


def test_a_stream_from_the_hub_has_a_fingerprint_only_with_a_revision():
    from pellucid.corpus.identity import dataset_identity
    from pellucid.corpus.readers.hub import Source
    from pellucid.corpus.readers.records import Fields

    assert dataset_identity(Source("a/b", split="train"), Fields()) is None
    first = dataset_identity(Source("a/b", split="train", revision="abc"), Fields())
    assert first is not None
    assert first != dataset_identity(Source("a/b", split="train", revision="abd"), Fields())
    assert first != dataset_identity(Source("a/b", split="test", revision="abc"), Fields())


# Opening by name


def test_open_tells_the_format(put):
    put("x.label", "D N\n")
    put("y.tags", "D N\n")
    assert Corpus.open(put("x.in", "a dog\n")).labels() == ("label",)
    assert Corpus.open(put("y.txt", "a dog\n"), format="tagged", label="pos").labels() == ("pos",)
    assert Corpus.open(put("z.txt", "a dog\n")).labels() == ()
    assert Corpus.open(put("a.md", "a\nb\n\nc\n"), unit="paragraph").info().sentences == 2
    assert Corpus.open(put("t.csv", "body,y\na,1\n"), text="body").facts() == ("y",)
    assert Corpus.open(put("t.ndjson", '{"text": "a", "y": 1}\n')).facts() == ("y",)
    asked = {"id": "q1", "question": "What?", "answers": []}
    assert Corpus.open(put("q.json", squad(asked))).info().pairs
    assert Corpus.open(put("s1.dev", "a\n"), format="parallel", second_path=put("s2.dev", "b\n")).info().pairs
    tree = put("t.CONLLU", "1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n")
    assert "upos" in Corpus.open(tree).labels()


def test_open_generates_grammar():
    assert list(Corpus.open("grammar:30:2")) == list(Corpus.grammar(30, seed=2))
    assert Corpus.open("grammar").fingerprint == Corpus.grammar().fingerprint
    with pytest.raises(CorpusError, match="write grammar, grammar:COUNT or grammar:COUNT:SEED"):
        Corpus.open("grammar:many")
    with pytest.raises(CorpusError, match="has no option 'unit'"):
        Corpus.open("grammar", unit="line")


def test_open_refuses_what_it_cannot_tell(put, tmp_path):
    with pytest.raises(
        CorpusError, match=r"tells no format; those known are \.conllu, \.txt.*Give the format as well: text, conllu"
    ):
        Corpus.open(put("a.dev", "x\n"))
    with pytest.raises(CorpusError, match="no format 'xml'; the formats are auto, text"):
        Corpus.open(put("a.dev", "x\n"), format="xml")
    with pytest.raises(CorpusError, match="The format text has no option 'label'; it has more, unit"):
        Corpus.open(put("a.txt", "x\n"), label="pos")
    with pytest.raises(CorpusError, match=r"no labels beside .*b.in: put them in b.label or b.tags"):
        Corpus.open(put("b.in", "x\n"))
    with pytest.raises(CorpusError, match="needs a second file: give its path as second_path"):
        Corpus.open(put("a.txt", "x\n"), format="pairs")
    with pytest.raises(CorpusError, match="is a folder"):
        Corpus.open(tmp_path)
