"""The training lab: small transformers trained from scratch or fine-tuned, and watched while they learn."""

from pellucid.train.curves import LearningCurves, learning_curves
from pellucid.train.folder import Run
from pellucid.train.freezing import Freeze
from pellucid.train.loop import train
from pellucid.train.settings import PRESETS, TASK_NAMES, Settings, settings_for

__all__ = [
    "PRESETS",
    "TASK_NAMES",
    "Freeze",
    "LearningCurves",
    "Run",
    "Settings",
    "learning_curves",
    "settings_for",
    "train",
]
