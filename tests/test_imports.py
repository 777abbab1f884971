"""The import rule: the top package costs milliseconds, and imports go one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pellucid

SOURCE = Path(pellucid.__file__).parent
ORDER = [
    ("errors",),
    ("saving", "uncertainty", "provenance", "written"),
    ("model", "corpus", "zoo"),
    ("results",),
    ("collect",),
    ("families", "concordance", "reading"),
    ("overview", "attribution", "similarity"),
    ("train",),  # watches similarity grow; its tasks measure what a model can do
    ("heads", "identifiability", "neurons"),
    ("views",),
    ("report",),
    ("studies",),
    ("cli",),
]
"""The parts of the package, from the ground up; each imports only what stands below it."""
ALLOWED = {
    ("model", "zoo"),  # the folder of a model that comes with the package
    ("results", "views"),  # a result draws itself
    ("results", "overview"),
    ("results", "heads"),
    ("results", "identifiability"),
    ("results", "neurons"),
    ("results", "similarity"),
    ("results", "attribution"),
    ("results", "train"),  # the kinds of results are found where they are defined
}
"""Late imports upwards, each with its reason."""
PARTS = [part for level in ORDER for part in level]
LAYERS = {
    part: [
        other
        for above in ORDER[number:]
        for other in above
        if other != part and (part, other) not in ALLOWED and other not in ORDER[number]
    ]
    for number, level in enumerate(ORDER)
    for part in level
}
"""What each part of the package must not import."""


def loaded_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after some code."""
    script = f"{code}\nimport sys\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def imported_names(path: Path) -> set[str]:
    """Every module that a file imports, anywhere in it, by its full name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize(
    "code",
    [
        "import pellucid",
        "import pellucid; pellucid.__version__; dir(pellucid); pellucid.PellucidError",
        "import pellucid.cli; pellucid.cli.build_app()",
    ],
)
def test_light_imports_load_no_heavy_library(code):
    heavy = {"torch", "transformers", "matplotlib", "numpy", "tokenizers"}
    assert not loaded_after(code) & heavy


def test_using_the_model_does_load_torch():
    """The check above would see torch if it were there."""
    assert {"torch", "transformers"} <= loaded_after("import pellucid; pellucid.Model")


def test_top_package_imports_nothing_heavy_at_module_level():
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    tops = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert {node.module for node in tops if isinstance(node, ast.ImportFrom)} == {
        "__future__",
        "importlib",
        "typing",
    }


@pytest.mark.parametrize("part", LAYERS)
def test_imports_go_one_way(part):
    files = [SOURCE / f"{part}.py"] if (SOURCE / f"{part}.py").is_file() else sorted((SOURCE / part).rglob("*.py"))
    assert files
    for path in files:
        wrong = [
            name
            for name in imported_names(path)
            for other in LAYERS[part]
            if name == f"pellucid.{other}" or name.startswith(f"pellucid.{other}.")
        ]
        assert not wrong, f"{path.relative_to(SOURCE)} imports {wrong}"


def test_the_oracle_shares_nothing_with_the_capture():
    """Only the check that drives both may import the model."""
    for path in sorted((SOURCE / "families").glob("*.py")):
        if path.name != "check.py":
            assert not [name for name in imported_names(path) if name.startswith("pellucid.model")], path.name


@pytest.mark.parametrize("name", [name for name in pellucid.__all__ if name != "__version__"])
def test_every_public_name_resolves_to_the_thing_of_that_name(name):
    assert name in dir(pellucid)
    assert getattr(pellucid, name).__name__.removeprefix("pellucid.") == name


def test_homes_and_public_names_agree():
    assert sorted([*pellucid._HOMES, *pellucid._PACKAGES, "__version__"]) == sorted(pellucid.__all__)


def test_unknown_attribute_raises_and_lists_what_exists():
    with pytest.raises(AttributeError, match=r"no attribute 'Modle'; it has Batch, .*Model"):
        pellucid.Modle  # noqa: B018
