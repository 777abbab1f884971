"""The reader of question answering in the format of SQuAD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pellucid.corpus.readers.files import numbered_lines
from pellucid.corpus.readers.names import Unique
from pellucid.corpus.sentence import Sentence
from pellucid.errors import CorpusError


def read_squad(path: Path) -> Iterator[Sentence]:
    """Questions, each with its context as the second sentence; the file is one JSON value and is read as a whole."""
    try:
        loaded: Any = json.loads("\n".join(line for _, line in numbered_lines(path)))
    except json.JSONDecodeError as error:
        raise CorpusError(f"{path}, line {error.lineno} is not JSON ({error.msg}).") from error
    questions, articles = Unique(), Unique()
    for number, article in enumerate(_part(loaded, "data", list, f"{path}"), start=1):
        where = f"{path}, article {number}"
        paragraphs = _part(article, "paragraphs", list, where)
        title = articles.name(str(article.get("title") or f"article {number}"))
        for place, paragraph in enumerate(paragraphs, start=1):
            yield from _questions(paragraph, title, questions, f"{where}, paragraph {place}")


def _questions(paragraph: Any, document: str, unique: Unique, where: str) -> Iterator[Sentence]:
    context = _part(paragraph, "context", str, where)
    read = Sentence.of_text(context, id="context", document=document)
    for number, asked in enumerate(_part(paragraph, "qas", list, where), start=1):
        here = f"{where}, question {number}"
        question = _part(asked, "question", str, here).strip()
        if not question or not read.spans:
            raise CorpusError(f"{here} has no text in its question or its context: mend it.")
        name = unique.name(str(_part(asked, "id", (str, int), here)))
        yield Sentence.of_text(
            question,
            id=name,
            document=document,
            facts=_answer(asked, context, here),
            second=Sentence(f"{name}/second", document, context, read.spans),
            joint=True,
        )


def _answer(asked: Any, context: str, where: str) -> dict[str, str]:
    """The first answer and the character of the context where it starts; `impossible` where there is none."""
    answers = asked.get("answers") or []
    if not answers:
        return {"impossible": "true"}
    text, start = _part(answers[0], "text", str, where), _part(answers[0], "answer_start", int, where)
    if not 0 <= start <= len(context) - len(text):
        raise CorpusError(f"{where}: the answer is said to start at character {start}, beyond its context.")
    return {"answer": text, "answer_start": str(start)}


def _part(holder: Any, name: str, kind: Any, where: str) -> Any:
    found = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(found, kind):
        raise CorpusError(f"{where} has no {name!r} as the SQuAD format wants it: check that this is such a file.")
    return found
