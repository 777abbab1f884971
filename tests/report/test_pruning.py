"""The page on pruning: what it says in words, with one point, with functions and with given orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid.heads import Pruning
from pellucid.report.pruning import sentences, write_pruning
from pellucid.results import Provenance, Table
from pellucid.views import figure_svg
from tests.overlaps import faults


def pruning(counts=(6, 4, 3, 1), *, score="accuracy", chosen=3, stack="", **arguments) -> Pruning:
    """A result with plausible numbers: two layers of three heads, gates closing from the last head on."""
    names = [f"{stack}{layer}.{head}" for layer in range(2) for head in range(3)]
    gates = np.array([[1.0 if at < count else 0.0 for at in range(6)] for count in counts])
    values = np.array([[0.9 - step * 0.02 * (6 - count) for count in counts] for step in (1, 2, 3)])
    values = values if score == "accuracy" else np.exp(4 * (1 - values))
    left = [name for name, gate in zip(names, gates[counts.index(chosen)], strict=True) if gate > 0]
    return Pruning(
        axes={"method": ("gates", "importance", "random"), "heads": counts},
        values=values,
        null=np.full_like(values, 0.5 if score == "accuracy" else 60.0),
        low=values * 0.97,
        high=values * 1.03,
        resampled="10 document groups (jackknife, 95%); at random: lowest and highest of 5 draws",
        provenance=Provenance(
            "heads.pruning",
            {
                "score": score,
                "chosen": chosen,
                "order": "gradient importance",
                "settings": {"tune": False},
                **arguments,
            },
        ),
        tables={
            "gates": Table({"heads": counts, "head": tuple(names)}, {"gate": gates, "used": gates}),
            "layers": Table.of_rows({"layer": ["0", "1"], "heads": [3, 3], "left": [3, 0]}),
            "survivors": Table.of_rows(
                {"head": left, "gate": [1.0] * len(left), "rank": list(range(1, len(left) + 1))}
            ),
            "path": Table.of_rows({"step": [0], "strength": [0.0]}),
        },
    )


def test_the_page_says_how_few_heads_are_enough(tmp_path):
    counts = {"function": ["positional", "none"], "heads": [2, 4], "left": [2, 1]}
    functions = Table.of_rows({**counts, "by chance": np.array([1.0, 2.0]), "low": [0, 1], "high": [2, 3]})
    result = pruning()
    result = replace(result, tables={**result.tables, "functions": functions})
    page = write_pruning(tmp_path / "out", result, title="my model", command="pellucid prune …", notes=["It is small."])
    text = page.read_text(encoding="utf-8")
    for words in (
        "With all 6 heads",
        "With 3 (50%) it has 0.840",
        "positional",
        "It is small.",
        "left by chance",
        "1 to 3",
    ):
        assert words in text, words
    assert (tmp_path / "out" / "tables" / "pruning-survivors.csv").is_file()
    assert (tmp_path / "out" / "tables" / "pruning-functions.csv").is_file()


def test_words_for_every_outcome():
    told = " ".join(sentences(pruning()))
    assert "an accuracy of 0.900 (chance: 0.500)" in told
    assert "0.780 by gradient importance, and 0.720 on average if they are drawn at random" in told
    assert "by the given order" in " ".join(sentences(pruning(order="given")))
    assert "not for the other two ways" in " ".join(sentences(pruning(settings={"tune": True})))
    assert "No gate closed" in " ".join(sentences(pruning(counts=(6,), chosen=6)))
    assert "Gates closed until 1 heads were left" in " ".join(sentences(pruning(chosen=6)))
    assert "a perplexity of" in " ".join(sentences(pruning(score="perplexity")))


@pytest.mark.parametrize("stack", ["", "encoder."])
@pytest.mark.parametrize("score", ["accuracy", "perplexity"])
@pytest.mark.parametrize("counts", [(6, 4, 3, 1), (6, 3), (6,)])
def test_figures_are_whole(counts, score, stack):
    result = pruning(counts, score=score, chosen=counts[-1], stack=stack)
    for width in (6.4, 9.2):
        figure = result.plot(width=width)
        assert not faults(figure)
        drawn = figure_svg(figure)
        assert "heads left" in drawn
        assert "chance" in drawn
        assert ("encoder layer 1" if stack else "layer 1") in drawn
