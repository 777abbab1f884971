"""Vocabularies: which words are kept and in what order, frames around texts, alignment, saving, and refusals."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from pellucid.corpus.align import word_index
from pellucid.errors import TrainError
from pellucid.train.settings import settings_for
from pellucid.train.vocabulary import (
    FRAMES,
    SPECIAL,
    bpe_vocabulary,
    fits,
    frame_for,
    vocabulary_for,
    word_vocabulary,
)

TEXTS = [
    "b a a c",
    "a b b <unk> d",
    "c\u00a0a c e",
]  # a, b, c three times or more, d and e once; a hard space splits too
PROSE = ["The naïve cat sat on the mat .", "Cats sat , sitting 中文 on mats !", "a <unk> cat 🙂 sat"] * 4


def both():
    words = word_vocabulary(PROSE, least=1, task="tagger", length=20)
    return {"word": words, "bpe": bpe_vocabulary(PROSE, size=330, task="tagger", length=20)}


def test_words_come_by_falling_count_and_then_by_the_alphabet():
    counts = Counter("baacabbdcace")
    expected = [*SPECIAL, *sorted(counts, key=lambda word: (-counts[word], word))]
    found = word_vocabulary(TEXTS, least=1, task="lm", length=8)
    assert found.convert_ids_to_tokens(list(range(len(found)))) == expected


def test_rare_words_and_words_beyond_the_size_are_unknown():
    frequent = word_vocabulary(TEXTS, least=3, task="lm", length=8, frame="end")
    assert sorted(frequent.get_vocab()) == sorted([*SPECIAL, "a", "b", "c"])
    assert frequent("a d zebra b").input_ids == [5, 1, 1, 6, 3]
    assert len(word_vocabulary(TEXTS, least=1, size=7, task="lm", length=8)) == 7
    assert len(word_vocabulary(TEXTS, least=1, size=70, task="lm", length=8)) == 10


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_special_tokens_have_the_same_ids_everywhere_and_can_be_written_in_a_text(kind):
    found = both()[kind]
    assert tuple(found.convert_ids_to_tokens([0, 1, 2, 3, 4])) == SPECIAL
    ids = (found.pad_token_id, found.unk_token_id, found.bos_token_id, found.eos_token_id, found.mask_token_id)
    assert ids == (0, 1, 2, 3, 4)
    cat, sat = (found(word, add_special_tokens=False).input_ids for word in ("cat", "sat"))
    assert found("cat <unk> sat <mask>", add_special_tokens=False).input_ids == [*cat, 1, *sat, 4]
    encoded = found("cat <unk>", return_special_tokens_mask=True)
    assert encoded.special_tokens_mask == [1, *[0] * len(cat), 0, 1]  # an unknown word of the text is text


def test_the_order_of_texts_does_not_matter():
    texts = [f"{word} {word[::-1]} {word * 2}" for word in ("stone", "river", "mountain", "field", "valley")] * 3
    mixed = random.Random(0).sample(texts, len(texts))
    for options in ({"least": 1}, {"size": 300}):
        learn = partial(word_vocabulary if "least" in options else bpe_vocabulary, task="lm", length=8, **options)
        assert learn(texts).get_vocab() == learn(mixed).get_vocab()


@pytest.mark.parametrize(
    ("frame", "one", "two"),
    [
        ("end", [5, 6, 3], [5, 6, 3, 7, 3]),
        ("both", [2, 5, 6, 3], [2, 5, 6, 3, 7, 3]),
        ("start", [2, 5, 6], [2, 5, 6, 2, 7]),
    ],
)
def test_frames(frame, one, two):
    found = word_vocabulary(TEXTS, least=3, task="nli", length=8, frame=frame)
    assert found("a b").input_ids == one
    pair = found("a b", "c")
    assert pair.input_ids == two
    second = two.index(7)
    assert pair.token_type_ids[second:] == [1] * (len(two) - second)
    assert not any(pair.token_type_ids[: second - 1])


def test_the_frame_and_the_token_types_follow_the_task():
    def named(task, preset="small", **changes):
        return frame_for(settings_for(task, preset, **changes))

    assert [named("lm"), named("lm", "identifiable"), named("lm", "thesis")] == ["start", "start", "end"]
    assert [named("tagger"), named("tagger", "thesis"), named("mlm", "thesis")] == ["both", "end", "end"]
    assert [named("translate"), named("nli"), named("qa"), named("classify", "thesis")] == ["end", *["both"] * 3]
    marked = {
        (task, preset): "token_type_ids"
        in vocabulary_for(PROSE, settings_for(task, preset, vocabulary_size=300)).model_input_names
        for task, preset in (("nli", "small"), ("nli", "identifiable"), ("lm", "small"), ("tagger", "thesis"))
    }
    assert marked == {
        ("nli", "small"): True,
        ("nli", "identifiable"): False,  # a Llama has no token types
        ("lm", "small"): False,  # GPT-2 would add them to its words
        ("tagger", "thesis"): False,
    }


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_a_folder_opens_again_without_a_network_and_encodes_the_same(kind, tmp_path):
    found = both()[kind]
    found.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    for text in (*PROSE, "x <unk> <mask> y", " two  spaces\tand a tab "):
        assert again(text).input_ids == found(text).input_ids
    assert (again.model_max_length, again.padding_side) == (20, "right")
    assert again.model_input_names == found.model_input_names
    assert again.all_special_ids == found.all_special_ids
    padded = again(["cat", "cat sat on"], padding=True).input_ids[0]
    assert padded[-1] == 0


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_every_word_gets_its_own_tokens(kind):
    found = both()[kind]
    for text in PROSE[:3]:
        words, spans, start = text.split(" "), [], 0
        for word in words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        encoded = found(text, return_offsets_mapping=True)
        index = word_index(encoded.offset_mapping, spans)
        assert set(index) == {-1, *range(len(words))}
        for place, (begin, end) in enumerate(encoded.offset_mapping):
            if index[place] >= 0:  # no token's span holds the space before its word
                assert spans[index[place]][0] <= begin < end <= spans[index[place]][1] or "<unk>" in text[begin:end]


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_words_given_apart_or_one_by_one_have_the_tokens_of_the_whole_text(kind):
    found = both()[kind]
    for text in PROSE[:3]:
        together = found(text).input_ids
        apart = found(text.split(" "), is_split_into_words=True)
        assert apart.input_ids == together
        assert [word for word in apart.word_ids() if word is not None][-1] == len(text.split(" ")) - 1
        assert [found.backend_tokenizer.encode(text).ids] == found([text]).input_ids == [together]


def test_byte_pairs_spell_any_text_and_keep_to_their_size():
    found = bpe_vocabulary(PROSE, size=300, task="lm", length=8)
    assert len(found) == 300
    for text in ("Ωμέγα zebra", "\x00 tab\t\nend", "🙂🙃"):
        ids = found(text, add_special_tokens=False).input_ids
        assert 1 not in ids
        assert found.decode(ids).removeprefix(" ") == text
    assert len(found(" cat", add_special_tokens=False).input_ids) < len(" cat")  # some pairs have been merged


def test_a_network_that_was_trained_with_another_vocabulary_is_refused():
    found = word_vocabulary(TEXTS, least=3, task="lm", length=8)
    fitting = {"vocab_size": 8, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    fits(found, SimpleNamespace(**fitting))
    for rows in (7, 9):
        with pytest.raises(TrainError, match=f"8 tokens and the checkpoint was trained with {rows}"):
            fits(found, SimpleNamespace(**{**fitting, "vocab_size": rows}))
    with pytest.raises(TrainError, match="eos_token_id 3 and the checkpoint was trained with 1"):
        fits(found, SimpleNamespace(**{**fitting, "eos_token_id": 1}))


def test_a_vocabulary_from_elsewhere_may_be_smaller_than_its_padded_table(gpt2_folder):
    found = AutoTokenizer.from_pretrained(gpt2_folder)
    fits(found, SimpleNamespace(vocab_size=len(found) + 40, eos_token_id=None))
    with pytest.raises(TrainError, match="give the tokenizer"):
        fits(found, SimpleNamespace(vocab_size=len(found) - 1))


def test_what_cannot_be_learned_is_refused():
    with pytest.raises(TrainError, match="no words at all"):
        word_vocabulary(["", "  "], least=1, task="lm", length=8)
    with pytest.raises(TrainError, match="no words at all"):
        bpe_vocabulary(["", "  "], size=300, task="lm", length=8)
    with pytest.raises(TrainError, match=r"No word occurs 9 times.*occurs 4 times"):
        word_vocabulary(TEXTS, least=9, task="lm", length=8)
    with pytest.raises(TrainError, match="5 special tokens alone"):
        word_vocabulary(TEXTS, least=1, size=5, task="lm", length=8)
    with pytest.raises(TrainError, match="take 261"):
        bpe_vocabulary(TEXTS, size=260, task="lm", length=8)
    with pytest.raises(TrainError, match=f"the frames are {', '.join(FRAMES)}"):
        word_vocabulary(TEXTS, least=1, task="lm", length=8, frame="none")
