"""Opening models and running them: `Model`, `Site`, `Edit`, `Batch`."""

from pellucid.model.batch import Batch
from pellucid.model.edits import Edit
from pellucid.model.model import Model
from pellucid.model.run import Captured, Generation, Run
from pellucid.model.sites import Site

__all__ = ["Batch", "Captured", "Edit", "Generation", "Model", "Run", "Site"]
