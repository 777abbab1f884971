"""Vocabularies of the models trained here: whole words or byte pairs, as tokenizers that open from their own folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from pellucid.errors import TrainError, listing

if TYPE_CHECKING:
    from pellucid.train.settings import Settings

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""The special tokens of every vocabulary made here; the place of each is its id."""
PAD, UNKNOWN, START, END, MASK = range(len(SPECIAL))

FRAMES = {
    "end": ("$A </s>", "$A </s> $B:1 </s>:1"),
    "both": ("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
    "start": ("<s> $A", "<s> $A <s> $B:1"),
}
"""What stands around one text, and around two."""

_USUAL = {"lm": "start", "translate": "end"}  # the other tasks read whole sentences: "both"
_PAIRED = ("classify", "nli", "qa")
_BYTES = 256
_NO_WORDS = "A vocabulary cannot be learned from no words at all; give a corpus that has text."
_WRITTEN = re.compile(" ?(?:" + "|".join(re.escape(token) for token in SPECIAL) + ")")  # special tokens in a text
# what the splitter at whitespace takes for space: Python's own list has four control characters more
_WORD = re.compile("[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def frame_for(settings: Settings) -> str:
    """The frame that suits a training: a running text is cut by </s> alone, a sentence stands between <s> and </s>.

    A language model's text begins with <s>, so that a prompt can be continued; in the thesis it ends with </s>.
    """
    if settings.task == "translate" or (settings.task == "lm" and settings.preset != "thesis"):
        return _USUAL[settings.task]
    return "end" if settings.rows == "stream" else "both"


def vocabulary_for(texts: Iterable[str], settings: Settings) -> PreTrainedTokenizerFast:
    """The vocabulary that a training's settings ask for, learned from its texts."""
    options: dict[str, Any] = {
        "task": settings.task,
        "length": settings.length,
        "frame": frame_for(settings),
        "types": settings.task in _PAIRED and settings.preset != "identifiable",
    }
    if settings.vocabulary == "word":
        return word_vocabulary(texts, least=settings.least, size=settings.vocabulary_size, **options)
    return bpe_vocabulary(texts, size=settings.vocabulary_size, **options)


def word_vocabulary(
    texts: Iterable[str],
    *,
    least: int,
    size: int = 0,
    task: str,
    length: int,
    frame: str | None = None,
    types: bool | None = None,
) -> PreTrainedTokenizerFast:
    """One token for every word (what stands between spaces) that occurs at least `least` times; the others are <unk>.

    Words come by falling count, then by the alphabet; `size` is the most tokens, special ones included (0: no limit).
    `frame` and `types` (whether a second text is marked by token types) are those that suit the task where not given.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_WORD.findall(text))
    if not counts:
        raise TrainError(_NO_WORDS)
    kept = [word for word, count in counts.items() if count >= least and word not in SPECIAL]
    if not kept:
        most = max(counts.values())
        raise TrainError(
            f"No word occurs {least} times, as the vocabulary asks (the most frequent one occurs {most} times); "
            "lower `least` or give more text."
        )
    kept.sort(key=lambda word: (-counts[word], word))
    if size:
        if size <= len(SPECIAL):
            raise TrainError(
                f"A vocabulary of {size} tokens has room for its {len(SPECIAL)} special tokens alone; give more."
            )
        kept = kept[: size - len(SPECIAL)]
    core = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate((*SPECIAL, *kept))}, unk_token=SPECIAL[UNKNOWN])
    )
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _finished(core, [], task=task, length=length, frame=frame, types=types)


def bpe_vocabulary(
    texts: Iterable[str],
    *,
    size: int,
    task: str,
    length: int,
    frame: str | None = None,
    types: bool | None = None,
) -> PreTrainedTokenizerFast:
    """At most `size` tokens of byte-level byte-pair encoding (Sennrich et al. 2016), which can spell any text.

    The first word of a text is encoded like any other, with the space before it, so words given apart or joined by
    spaces have the same tokens. `frame` and `types` are as for `word_vocabulary`.
    """
    if size < _BYTES + len(SPECIAL):
        raise TrainError(
            f"A byte-pair vocabulary of {size} tokens is too small: the {_BYTES} bytes and {len(SPECIAL)} special "
            f"tokens alone take {_BYTES + len(SPECIAL)}."
        )
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_tokens(lstrip=True)),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = 0

    def plain() -> Iterator[str]:
        nonlocal words
        for text in texts:
            words += bool(_WORD.search(text))
            yield _WRITTEN.sub("", text)

    core.train_from_iterator(plain(), trainer)
    if not words:
        raise TrainError(_NO_WORDS)
    trim = processors.ByteLevel(trim_offsets=True)  # a word's characters without the space before it
    return _finished(core, [trim], task=task, length=length, frame=frame, types=types, lstrip=True)


def fits(tokenizer: Any, network_config: Any) -> None:
    """Raises where a vocabulary is not the one that a checkpoint was trained with, by its size and special tokens.

    A vocabulary made here must match exactly; others may be smaller than their network's table, which some pad.
    """
    tokens, rows = len(tokenizer), int(network_config.vocab_size)
    ours = tuple(tokenizer.convert_ids_to_tokens(list(range(min(len(SPECIAL), tokens))))) == SPECIAL
    if tokens > rows or (ours and tokens != rows):
        raise TrainError(
            f"The vocabulary has {tokens:,} tokens and the checkpoint was trained with {rows:,}; give the tokenizer "
            "that was saved beside it."
        )
    if not ours:
        return
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        has, wants = getattr(tokenizer, name), getattr(network_config, name, None)
        if wants is not None and has != wants:
            raise TrainError(
                f"The vocabulary has {name} {has} and the checkpoint was trained with {wants}; give the tokenizer that "
                "was saved beside it."
            )


def _tokens(*, lstrip: bool) -> Iterable[AddedToken]:
    """The special tokens; with `lstrip`, the space before one in a text is part of it."""
    return (AddedToken(token, lstrip=lstrip, normalized=False, special=True) for token in SPECIAL)


def _finished(
    core: Tokenizer,
    before: list[Any],
    *,
    task: str,
    length: int,
    frame: str | None,
    types: bool | None,
    lstrip: bool = False,
) -> PreTrainedTokenizerFast:
    """The vocabulary with its frame (after the processors `before` it), as transformers reads it."""
    chosen = frame or _USUAL.get(task, "both")
    if chosen not in FRAMES:
        raise TrainError(f"There is no frame {chosen!r} to put around a text; the frames are {listing(FRAMES)}.")
    single, pair = FRAMES[chosen]
    template = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(SPECIAL[place], place) for place in (START, END)]
    )
    core.post_processor = processors.Sequence([*before, template]) if before else template
    marked = task in _PAIRED if types is None else types
    names = ("pad_token", "unk_token", "bos_token", "eos_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        model_max_length=length,
        model_input_names=["input_ids", *(["token_type_ids"] if marked else []), "attention_mask"],
        clean_up_tokenization_spaces=False,
        padding_side="right",
        **dict(zip(names, _tokens(lstrip=lstrip), strict=True)),  # pyright: ignore[reportArgumentType]
    )
