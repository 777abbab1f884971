"""Tokens made readable: words, spaces, specials, segments, parts of letters, and texts that were cut."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from pellucid.errors import TextError
from pellucid.model import Model
from pellucid.views import head_view
from pellucid.views.interactive.reading import read
from pellucid.views.interactive.tokens import right_to_left
from tests.tiny_models import network
from tests.views.interactive.decoding import TEXT, model, tokens


def word_pieces() -> PreTrainedTokenizerFast:
    """Cased word pieces between [CLS] and [SEP]."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##happi", "##ness", "reigns", ",", "<", "b", ">"]
    core = Tokenizer(models.WordPiece({name: place for place, name in enumerate(names)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    kinds = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **{f"{kind}_token": name for kind, name in kinds.items()})


def single_bytes() -> PreTrainedTokenizerFast:
    """Byte-level tokens without merges: every letter beyond ASCII is in parts."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(letters)}
    core = Tokenizer(models.BPE(vocabulary, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=core)


def opened(tokenizer: PreTrainedTokenizerFast, name: str = "bert") -> Model:
    hf = network(name)
    if len(tokenizer) > hf.config.vocab_size:
        hf.resize_token_embeddings(len(tokenizer))
    return Model.load(hf, tokenizer=tokenizer)


def test_word_pieces_have_their_word_and_no_signs():
    found = read(opened(word_pieces()), "unhappiness reigns, un").tokens["text"]
    assert found.text == ("[CLS]", "un", "happi", "ness", "reigns", ",", "un", "[SEP]")
    assert found.space == "01001011"
    assert found.word == (-1, 0, 0, 0, 1, 2, 3, -1)
    assert found.special == (0, 7)
    assert found.segments == ("text",)
    assert not found.rtl


def test_unknown_words_and_masks_are_words():
    found = read(opened(word_pieces()), "un strange [MASK]").tokens["text"]
    assert found.text == ("[CLS]", "un", "[UNK]", "[MASK]", "[SEP]")
    assert (found.word, found.special) == ((-1, 0, 1, 2, -1), (0, 4))


def test_pairs_have_two_segments_and_go_on_counting_words():
    found = read(opened(word_pieces()), "un reigns", pair="reigns un").tokens["text"]
    assert found.text == ("[CLS]", "un", "reigns", "[SEP]", "reigns", "un", "[SEP]")
    assert found.segment == (0, 0, 0, 0, 1, 1, 1)
    assert found.segments == ("first", "second")
    assert found.word == (-1, 0, 1, -1, 2, 3, -1)


def test_parts_of_letters_are_shown_as_bytes_of_one_word():
    found = read(opened(single_bytes(), "gpt2"), "é 👍\n\tש").tokens["text"]
    assert found.text == ("⟨C3⟩", "⟨A9⟩", "␣", "⟨F0⟩", "⟨9F⟩", "⟨91⟩", "⟨8D⟩", "⏎", "⇥", "⟨D7⟩", "⟨A9⟩")
    assert found.word[0] == found.word[1]
    assert len(set(found.word[3:7])) == 1
    assert len(set(found.word)) == 6  # é, space, thumb, line break, tab, shin
    assert found.space[4:7] == "000"


def test_letters_decide_the_direction():
    assert right_to_left("שלום עולם (ok)")
    assert right_to_left("مرحبا 123")
    assert not right_to_left("hello שלום there")
    assert not right_to_left("123 …")
    assert read(opened(single_bytes(), "gpt2"), "שלום").tokens["text"].rtl


def test_generated_tokens_follow_the_prompt():
    model_ = opened(single_bytes(), "gpt2")
    reading = read(model_, "ab", generate=3)
    found = reading.tokens["text"]
    made = model_.generate("ab", max_new_tokens=3).ids[0].tolist()
    assert list(found.ids) == made == reading.batch.ids[0].tolist()
    assert found.segments == ("prompt", "generated")
    assert found.segment == (0, 0, *[1] * (len(made) - 2))
    assert found.text[:2] == ("a", "b")
    assert 0 not in found.word[2:]  # a word never reaches from the prompt into what was generated


def test_the_pass_of_a_generated_view_is_one_over_the_whole_text():
    from tests.views.interactive.decoding import head_codes, weight

    model_ = opened(single_bytes(), "gpt2")
    view = head_view(model_, "ab", generate=3)
    reading = read(model_, "ab", generate=3)
    exact = model_.run(reading.batch, ["pattern.1"])["pattern.1"][0, 2].double().numpy()
    assert abs(weight(head_codes(view, 1, 2)[0]) ** 0.5 - exact**0.5).max() <= 0.5 / 255 + 1e-6


def test_the_decoder_reads_its_target_one_step_late():
    found = read(model("t5"), "the dog sleeps", target="a red cat runs")
    source, target = found.tokens["source"], found.tokens["target"]
    assert source.text == ("<s>", "the", "dog", "sleeps", "</s>")
    assert list(target.ids) == found.batch.target_ids[0].tolist()
    assert target.text[1:] == ("<s>", "a", "red", "cat", "runs")
    assert target.word == (-1, -1, 0, 1, 2, 3)
    assert target.segments == ("target",)
    assert found.notes == ()


def test_parts_of_a_targets_words_stay_together():
    target = read(opened(word_pieces(), "bart"), "un", target="unhappiness reigns,").tokens["target"]
    assert target.text[1:] == ("[CLS]", "un", "happi", "ness", "reigns", ",")
    assert target.word == (-1, -1, 0, 0, 0, 1, 2)
    assert target.space[3:] == "0010"


def test_a_decoder_without_a_target_says_so_and_can_write_one():
    alone = read(model("t5"), "the dog sleeps")
    assert len(alone.tokens["target"]) == 1
    assert "start token alone" in alone.notes[0]
    written = read(model("bart"), "the dog sleeps", generate=4)
    assert written.tokens["target"].segments == ("prompt", "generated")
    assert list(written.tokens["target"].ids) == written.batch.target_ids[0].tolist()
    assert 1 < len(written.tokens["target"]) <= 5
    assert written.notes == ()


def test_text_over_the_limit_is_cut_and_the_notes_say_so():
    opened_ = model("bert")
    assert opened_.limit == 70
    view = head_view(opened_, "dog " * 100, layers=[0])
    found = tokens(view)
    assert len(found["text"]) == 70
    assert (found["text"][0], found["text"][-1], found["word"][-2]) == ("<s>", "</s>", 67)
    assert "has 102 tokens" in view.notes[0]
    assert "at most 70" in view.notes[0]
    assert "the last 32 were cut" in view.notes[0]
    with pytest.raises(TextError, match="target has"):
        read(model("bart"), "dog", target="cat " * 100)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"text": ""}, "at least one word"),
        ({"text": " \n"}, "at least one word"),
        ({"text": "a \ud83d dog"}, r"'\\ud83d' at character 2"),
        ({"text": ["a", "b"]}, "one text, given as a string"),
        ({"text": b"a"}, "one text, given as a string"),
        ({"text": TEXT, "pair": ""}, "second text"),
        ({"text": TEXT, "pair": "\udcff"}, "The pair holds"),
        ({"text": TEXT, "target": "a"}, "Only encoder–decoder"),
        ({"text": TEXT, "generate": -1}, "fewer than no tokens"),
    ],
)
def test_bad_text_is_one_sentence(arguments, complaint):
    with pytest.raises(TextError, match=complaint) as error:
        read(model("gpt2"), **arguments)
    str(error.value).encode()
