"""Corpora: streams of sentences with labelled words, read from files, generated, or given."""

from pellucid.corpus.align import Cut, Window, common, dropped, pieces, truncated, windows, word_index
from pellucid.corpus.corpus import Corpus
from pellucid.corpus.formats import FORMATS
from pellucid.corpus.info import CorpusInfo, LabelInfo
from pellucid.corpus.sentence import Arc, Sentence, digest, word_spans

__all__ = [
    "FORMATS",
    "Arc",
    "Corpus",
    "CorpusInfo",
    "Cut",
    "LabelInfo",
    "Sentence",
    "Window",
    "common",
    "digest",
    "dropped",
    "pieces",
    "truncated",
    "windows",
    "word_index",
    "word_spans",
]
