"""The reader of CoNLL-U treebanks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.corpus.readers.files import numbered_lines
from pellucid.corpus.readers.names import Unique
from pellucid.corpus.sentence import Arc, Sentence
from pellucid.errors import CorpusError

if TYPE_CHECKING:
    from conllu import TokenList

_NOT_FACTS = ("sent_id", "text", "global.columns")


def is_newdoc(line: str) -> bool:
    """Whether a line is the comment that opens a document."""
    return line.startswith("#") and line[1:].split("=")[0].split()[:1] == ["newdoc"]


def read_conllu(path: Path) -> Iterator[Sentence]:
    """The sentences of a treebank; ids that repeat get a number behind them.

    Words are the syntactic words: those of a multiword token share its characters out among them, and empty nodes are
    left out. Where `# text` is absent, or is not spelt by the words, the text is rebuilt from forms and `SpaceAfter`.
    """
    unique, opened = Unique(), count(1)
    document: str | None = None
    for number, block in enumerate(_blocks(path), start=1):
        tokens = _parsed(block)
        metadata: dict[str, str | None] = tokens.metadata
        for key in ("newdoc id", "newdoc"):
            if key in metadata:
                document = metadata[key] or f"document {next(opened)}"
                break
        name = unique.name(metadata.get("sent_id") or str(number))
        yield _sentence(tokens, name, document or name, block)


@dataclass(frozen=True)
class _Block:
    """The lines of one sentence with their numbers in the file."""

    path: Path
    lines: list[tuple[int, str]]

    def error(self, token: object, problem: str) -> CorpusError:
        """An error that names the line of the token with this id."""
        found = [number for number, line in self.lines if line.split("\t")[0] == str(token)]
        return CorpusError(f"{self.path}, line {found[0] if found else self.lines[0][0]}: {problem}")


def _blocks(path: Path) -> Iterator[_Block]:
    """The sentences of the file, not yet parsed; comments that a blank line sets apart go with the next sentence."""
    lines: list[tuple[int, str]] = []
    for number, line in numbered_lines(path):
        if line.strip():
            lines.append((number, line))
        elif lines and not lines[-1][1].startswith("#"):
            yield _Block(path, lines)
            lines = []
    if lines and not lines[-1][1].startswith("#"):
        yield _Block(path, lines)


def _parsed(block: _Block) -> TokenList:
    try:
        import conllu
        from conllu.exceptions import ParseException
    except ImportError as error:
        raise CorpusError("Reading CoNLL-U needs the library `conllu`: install it with pip install conllu.") from error
    for number, line in block.lines:
        columns = line.count("\t") + 1
        if not line.startswith("#") and columns != 10:
            raise CorpusError(
                f"{block.path}, line {number}: CoNLL-U has 10 columns separated by tabs, this line has {columns}."
            )
    try:
        return conllu.parse("\n".join(line for _, line in block.lines), field_parsers={"deps": _unread})[0]
    except ParseException:
        for number, line in block.lines:  # find the line that is at fault
            try:
                conllu.parse(line)
            except ParseException as error:
                problem = str(error).splitlines()[0].rstrip(".")
                raise CorpusError(f"{block.path}, line {number}: {problem}.") from error
        raise


def _unread(line: list[str], column: int) -> str:
    """A column that nothing here needs, left as it is: enhanced dependencies take a third of the time of parsing."""
    return line[column]


def _sentence(tokens: TokenList, name: str, document: str, block: _Block) -> Sentence:
    words: list[Any] = [token for token in tokens if isinstance(token["id"], int)]
    for expected, word in enumerate(words, start=1):
        if word["id"] != expected:
            raise block.error(word["id"], f"word {expected} was expected here, and word {word['id']} was found.")
    text, spans = _spans(tokens, block)
    metadata: dict[str, str | None] = tokens.metadata
    facts = {
        key: value
        for key, value in metadata.items()
        if value and key not in _NOT_FACTS and not key.startswith(("newdoc", "newpar"))
    }
    return Sentence(name, document, text, spans, _labels(words, text, spans), _arcs(words, block), facts)


def _labels(words: Sequence[Any], text: str, spans: Sequence[tuple[int, int]]) -> dict[str, tuple[str | None, ...]]:
    """upos, xpos, lemma, deprel and one label per feature; `form` where a word is not written as it is."""
    labels: dict[str, tuple[str | None, ...]] = {
        name: tuple([None if word[name] in (None, "_", "") else str(word[name]) for word in words])
        for name in ("upos", "xpos", "deprel")
    }
    # An underscore says that there is no lemma, except for the word that is an underscore itself.
    labels["lemma"] = tuple([None if word["lemma"] == "_" != word["form"] else word["lemma"] for word in words])
    features = sorted({name for word in words for name in word["feats"] or ()})
    for feature in features:
        labels[f"feats.{feature}"] = tuple([(word["feats"] or {}).get(feature) for word in words])
    forms = tuple([str(word["form"]) for word in words])
    if any(text[start:stop] != form for form, (start, stop) in zip(forms, spans, strict=True)):
        labels["form"] = forms
    return labels


def _arcs(words: Sequence[Any], block: _Block) -> tuple[Arc, ...]:
    arcs: list[Arc] = []
    for position, word in enumerate(words):
        head = word["head"]
        if head is None or head == "_":
            continue
        if not isinstance(head, int) or not 0 <= head <= len(words) or head == word["id"]:
            raise block.error(
                word["id"], f"the head of word {word['id']} is {head}, but the sentence has words 1 to {len(words)}."
            )
        arcs.append(Arc(position, head - 1, word["deprel"] or "_"))
    return tuple(arcs)


def _spans(tokens: TokenList, block: _Block) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a sentence and the characters of each of its words."""
    surface = _surface(tokens, block)
    text: str = tokens.metadata.get("text") or ""
    found = _found_in(text, [form for form, _, _ in surface])
    if found is None:
        text = "".join(form + (" " if space else "") for form, _, space in surface).strip()
        found = _found_in(text, [form for form, _, _ in surface])
        assert found is not None
    spans: list[tuple[int, int]] = []
    for (start, stop), (_, forms, _) in zip(found, surface, strict=True):
        spans.extend(shared_out(text[start:stop], forms, start))
    return text, tuple(spans)


def _surface(tokens: TokenList, block: _Block) -> list[tuple[str, list[str], bool]]:
    """The tokens as written: form, forms of the words in it, and whether a space follows."""
    surface: list[tuple[str, list[str], bool]] = []
    inside = 0  # the last word of the multiword token being read
    for token in tokens:
        number: Any = token["id"]
        form = str(token["form"]).strip()
        space = (token["misc"] or {}).get("SpaceAfter") != "No"
        if isinstance(number, int):
            if not form:
                raise block.error(number, f"word {number} has no form.")
            if number <= inside:
                surface[-1][1].append(form)
            else:
                surface.append((form, [form], space))
        elif number[1] == "-":
            if number[0] <= inside:
                raise block.error(f"{number[0]}-{number[2]}", "this range of words runs into the one before it.")
            surface.append((form, [], space))
            inside = number[2]
    if surface and not surface[-1][1]:
        raise block.error("", "a range of words has no words.")
    return surface


def _found_in(text: str, forms: Sequence[str]) -> list[tuple[int, int]] | None:
    """Where the forms stand in a text one after the other, with nothing but space between them."""
    found: list[tuple[int, int]] = []
    position = 0
    for form in forms:
        while position < len(text) and text[position].isspace():
            position += 1
        if not text.startswith(form, position):
            return None
        found.append((position, position + len(form)))
        position += len(form)
    return None if text[position:].strip() else found


def shared_out(surface: str, forms: Sequence[str], start: int) -> list[tuple[int, int]]:
    """The characters of a multiword token shared out among its words: (start, stop) of each in the text.

    Words that begin or end it as they are written take their characters ("can't" = ca + n't); what is left is split
    in proportion to the lengths of the forms, at least one character each ("du" = d + u for de + le). A token with
    fewer characters than words is given to all of them.
    """
    size = len(surface)
    if len(forms) == 1 or size < len(forms):
        return [(start, start + size)] * len(forms)
    others, lowered = len(forms) - 1, surface.lower()
    if len(lowered) == size:
        head, tail = forms[0].lower(), forms[-1].lower()
        if lowered.startswith(head) and size - len(head) >= others:
            return [(start, start + len(head)), *shared_out(surface[len(head) :], forms[1:], start + len(head))]
        if lowered.endswith(tail) and size - len(tail) >= others:
            cut = size - len(tail)
            return [*shared_out(surface[:cut], forms[:-1], start), (start + cut, start + size)]
    share = round(size * len(forms[0]) / sum(len(form) for form in forms))
    share = min(max(share, 1), size - others)
    return [(start, start + share), *shared_out(surface[share:], forms[1:], start + share)]
