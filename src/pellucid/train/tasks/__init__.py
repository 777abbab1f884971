"""The tasks of the training lab, by name."""

from pellucid.train.tasks.answering import Answering
from pellucid.train.tasks.base import Examples, Task
from pellucid.train.tasks.classification import Classification
from pellucid.train.tasks.language import LanguageModelling, MaskedLanguageModelling
from pellucid.train.tasks.rows import IGNORED
from pellucid.train.tasks.tagging import Tagging
from pellucid.train.tasks.translation import Translating

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        LanguageModelling(),
        MaskedLanguageModelling(),
        Tagging(),
        Translating(),
        Classification("classify", paired=False),
        Answering(),
        Classification("nli", paired=True),
    )
}

__all__ = ["IGNORED", "TASKS", "Examples", "Task"]
