"""Text to batches: padding on either side, pairs, targets, limits, and ids that cannot be."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from pellucid.errors import TextError
from pellucid.model import Batch, Model
from tests.tiny_models import SPECIAL, WORDS, network, opened, word_tokenizer

ID = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}


@cache
def model(name: str = "gpt2", *, closing: bool = False) -> Model:
    return Model.load(network(name), tokenizer=word_tokenizer(closing=closing))


def ids(text: str) -> list[int]:
    return [ID[word] for word in text.split()]


def test_words_become_ids_padded_to_the_longest():
    batch = model().tokenize(["the old dog", "keys"])
    assert batch.ids.tolist() == [ids("the old dog"), ids("keys <pad> <pad>")]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.special.tolist() == [[False] * 3, [False, True, True]]
    assert (batch.size, batch.tokens) == (2, 4)


def test_padding_side_is_obeyed():
    batch = model().tokenize(["the old dog", "keys"], padding_side="left")
    assert batch.ids.tolist()[1] == ids("<pad> <pad> keys")
    assert batch.mask.tolist()[1] == [0, 0, 1]
    with pytest.raises(TextError, match="padding_side is 'middle'"):
        model().tokenize("keys", padding_side="middle")


def test_special_tokens_are_marked():
    batch = model("bert", closing=True).tokenize(["the dog", "a"])
    assert batch.ids.tolist() == [ids("<s> the dog </s>"), ids("<s> a </s> <pad>")]
    assert batch.special.tolist() == [[True, False, False, True], [True, False, True, True]]
    assert batch.mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_pairs_are_joined_and_their_segments_reach_the_model():
    bert = model("bert", closing=True)
    batch = bert.tokenize("the dog", "a cat")
    assert batch.ids.tolist() == [ids("<s> the dog </s> a cat </s>")]
    assert batch.types.tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    plain = Batch.of_ids(batch.ids)
    assert not torch.equal(bert.run(batch).logits, bert.run(plain).logits)
    with pytest.raises(TextError, match="1 texts and 2 second texts"):
        bert.tokenize("the dog", ["a", "cat"])


def test_text_is_run_as_its_batch():
    one = model().run("the old dog", "heads.1")
    assert torch.equal(one["heads.1"], model().run(Batch.of_ids([ids("the old dog")]), "heads.1")["heads.1"])
    assert one.batch.ids.tolist() == [ids("the old dog")]


def test_a_decoder_reads_its_start_token_then_the_target_without_its_last():
    t5 = model("t5", closing=True)
    batch = t5.tokenize(["the dog", "a"], target=["old cat", "red"])
    start = t5.hf.config.decoder_start_token_id
    assert batch.target_ids.tolist() == [[start, *ids("<s> old cat")], [start, *ids("<s> red <pad>")]]
    assert batch.target_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert t5.tokenize("the dog").target_ids.tolist() == [[start]]


def test_targets_are_refused_where_there_is_no_decoder_or_they_do_not_match():
    with pytest.raises(TextError, match="Only encoder–decoder models take target="):
        model().tokenize("the dog", target="a")
    with pytest.raises(TextError, match="2 texts and 1 targets"):
        model("t5", closing=True).tokenize(["the dog", "a"], target=["old"])
    with pytest.raises(TextError, match="needs target ids"):
        opened("t5").run(Batch.of_ids([[9, 8]]))


@pytest.mark.parametrize("texts", ["", "   ", [], ["the", ""], ["the", 3]])
def test_empty_text_is_refused(texts):
    with pytest.raises(TextError, match="must hold at least one word"):
        model().tokenize(texts)


def test_text_over_the_limit_is_refused_and_cut_only_when_asked():
    long = " ".join(["dog"] * 71)
    with pytest.raises(
        TextError, match=r"has 71 tokens and .* takes at most 70; shorten it, or cut it with truncate=True"
    ):
        model().tokenize(["the", long])
    batch = model().tokenize(["the", long], truncate=True)
    assert batch.ids.shape == (2, 70)
    assert batch.mask.sum(1).tolist() == [1, 70]
    assert model().run(batch).logits.shape[1] == 70


def test_cutting_keeps_the_closing_token():
    bert = model("bert", closing=True)
    batch = bert.tokenize(" ".join(["dog"] * 100), truncate=True)
    assert batch.ids.shape == (1, 70)
    assert batch.ids[0, 0] == ID["<s>"]
    assert batch.ids[0, -1] == ID["</s>"]
    assert batch.special[0].nonzero()[:, 0].tolist() == [0, 69]


def test_text_exactly_at_the_limit_is_taken():
    assert model().run(" ".join(["dog"] * 70)).logits.shape[1] == 70


def test_position_tables_that_begin_after_the_padding_row_are_shorter_than_the_config_says():
    """RoBERTa's first token stands at row pad + 1: 70 rows take 68 tokens."""
    roberta = opened("roberta")
    assert roberta.limit == 68
    assert roberta.run(Batch.of_ids(torch.full((1, 68), 9))).logits.shape[1] == 68
    with pytest.raises(TextError, match="69 tokens and this model takes at most 68"):
        roberta.run(Batch.of_ids(torch.full((1, 69), 9)))


def test_relative_positions_have_no_limit():
    assert opened("t5").limit is None
    assert opened("xlnet").limit is None


def test_a_model_without_tokenizer_says_what_to_pass():
    with pytest.raises(
        TextError, match=r"no tokenizer beside it; pass one with Model.load\(…, tokenizer=…\), or give ready ids"
    ):
        opened("gpt2").run("the dog")


@pytest.mark.parametrize(("wrong", "named"), [([[9, 97]], "97"), ([[9, -1]], "-1"), ([[9, 500]], "500")])
def test_ids_outside_the_vocabulary_are_refused_and_named(wrong, named):
    with pytest.raises(TextError, match=rf"Token id {named} is outside this model's vocabulary of 97"):
        opened("gpt2").run(Batch.of_ids(wrong))


def test_target_ids_are_checked_too():
    with pytest.raises(TextError, match="Token id 97 is outside"):
        opened("t5").run(Batch.of_ids([[9]], target_ids=torch.tensor([[97]])))


@pytest.mark.parametrize("wrong", [[1, 2, 3], [[]], torch.ones(2, 3, 4).long(), [[1, 2], [3]], torch.ones(1, 3)])
def test_ids_that_are_no_matrix_of_numbers_are_refused(wrong):
    with pytest.raises(TextError):
        Batch.of_ids(wrong)


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(TextError, match=r"mask has shape \(1, 2\) and the ids \(1, 3\)"):
        Batch.of_ids([[1, 2, 3]], torch.ones(1, 2))


def test_a_mask_may_be_a_list_like_the_ids():
    assert Batch.of_ids([[1, 2]], [[1, 0]]).tokens == 1


def test_moving_a_batch_keeps_every_part():
    batch = Batch.of_ids([[1, 2]], target_ids=torch.tensor([[3]]), types=torch.tensor([[0, 1]]))
    batch = replace(batch, word_index=torch.tensor([[0, -1]]), counted=torch.tensor([[True, False]]))
    moved = batch.to("cpu")
    assert all(torch.equal(getattr(moved, name), value) for name, value in vars(batch).items())
