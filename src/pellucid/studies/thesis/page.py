"""The page of the thesis study: one offline HTML file with every table and figure, drawn from the numbers alone."""

from __future__ import annotations

from pathlib import Path

from pellucid.report.html import number
from pellucid.report.sheet import Sheet
from pellucid.studies.study_page import StudyPage
from pellucid.studies.thesis import figures, published, rows
from pellucid.studies.thesis.chance import google_null
from pellucid.studies.thesis.claims import claims
from pellucid.studies.thesis.rows import Rows
from pellucid.studies.thesis.tables import LAYOUTS, Study, write
from pellucid.studies.thesis.verdicts import range_of


def write_page(study: Study, folder: str | Path, *, command: str | None = None) -> Path:
    """A new folder with thesis.html, its tables and figures, and the numbers that it was drawn from."""
    about = f"{published.TITLE}: run again, with what chance and untrained networks give beside every number."
    return _PAGE.write(study, folder, about=about, reading=_reading(study), command=command)


def _reading(study: Study) -> list[str]:
    layout, text = study.facts["layout"], study.facts["text"]
    shapes = (
        f"Every comparison is made twice. In the thesis's layout, a layer is {layout['rows']:,} rows (places in the "
        f"text) × {layout['columns'] * layout['width']:,} columns ({layout['columns']} columns of text × "
        f"{layout['width']} features). In the right one, it is {text['words']:,} words × {layout['width']} features."
    )
    controls = (
        "Chance is what a score gives when one side is dealt out at random. Untrained networks usually score much more "
        "than that, because both sides read the same words: they, not chance, are what learning must be compared with."
    )
    return [f"This run: {study.facts['scale']['about']} Text: {text['name']}.", shapes, controls]


def _shown(sheet: Sheet, table: Rows, *, fold: str | None = None) -> None:
    sheet.table(table.columns, table.rows, caption=table.caption, name=table.name, right=table.numbers, fold=fold)


def _claims(sheet: Sheet, study: Study) -> None:
    judged = claims(study)
    standing = sum(each.verdict.startswith("stands") for each in judged)
    open_ = sum(each.verdict.startswith("cannot") for each in judged)
    told = f"{standing} of {len(judged)} claims stand by these rules"
    sheet.text(f"{told}; {open_} cannot be told from this run." if open_ else f"{told}.")
    _shown(sheet, rows.verdicts(study))
    _shown(sheet, rows.rules(study), fold="The rules")
    test = study.facts["training"]
    accuracy, guessed = (test["tagger"]["test"][name]["accuracy"] for name in ("scores", "chance"))
    perplexity, unigram = (test["lm"]["test"][name]["perplexity"] for name in ("scores", "chance"))
    one = study.one("between", "words", "cka", "tagger.1", "lm.1")
    noise = google_null(published.POINTS, published.ROWS, published.ROWS).mean
    wanted = f"published {published.ACCURACY.value:.1%}", f"published {published.PERPLEXITY.value:g}"
    sheet.highlight("tagger, accuracy", f"{accuracy:.1%}", chance=f"{wanted[0]}, chance {guessed:.1%}")
    sheet.highlight("language model, perplexity", number(perplexity), chance=f"{wanted[1]}, chance {unigram:,.0f}")
    printed = range_of([value for row in published.TABLE_2["SVCCA"] for value in row])
    sheet.highlight("SVCCA as published", printed, chance=f"noise of that shape {noise:.3f}")
    sheet.highlight(
        "debiased CKA of layers 1", number(one.value), chance=f"untrained networks up to {number(one.random)}"
    )


def _training(sheet: Sheet, study: Study) -> None:
    _shown(sheet, rows.training(study))
    sheet.figure(
        figures.losses(study),
        name="losses",
        caption="Mean loss in nats, of the training text while learning (with dropout), and of the validation text.",
        alt="Loss of both networks by epoch.",
    )
    for task, name in (("lm", "language model"), ("tagger", "tagger")):
        told = study.facts["training"][task]
        settings, network = told["settings"], told["network"]
        sheet.note(
            f"The {name}: {settings['layers']} layers × {settings['width']}, {settings['heads']} heads, "
            f"{network['parameters']:,} parameters, {network['vocabulary']:,} words; {settings['epochs']} epochs of "
            f"{told['corpora']['training']['tokens']:,} tokens, {settings['optimiser'].upper()} at "
            f"{settings['learning_rate']:g} (× {settings['decay']:g} every {settings['decay_every']} epochs), "
            f"gradients clipped at {settings['clip']:g}; {told['device']}, {told['precision']}."
        )


def _noise(sheet: Sheet, study: Study) -> None:
    _shown(sheet, rows.noise(study))
    sheet.figure(
        figures.spectra(study),
        name="spectra",
        caption="All canonical correlations of the rows of two layers. SVCCA as the thesis computed it is the mean of "
        "those that make up 98% of their sum.",
        alt="Canonical correlations of tagger and language model beside those of noise.",
    )


def _between(sheet: Sheet, study: Study) -> None:
    for layout, table in (("thesis", rows.between(study)), ("words", rows.beside(study))):
        sheet.heading("In the thesis's layout" if layout == "thesis" else "Word by word")
        sheet.note(f"Rows and columns: {LAYOUTS[layout]}.")
        sheet.figure(
            figures.partners(study, layout),
            name=f"between-{layout}",
            caption="Layers of the trained tagger with layers of the trained language model (LM).",
            alt="Bars of four scores for four pairs of layers.",
        )
        _shown(sheet, table)
    sheet.note(
        f"The thesis prints validation arrays of {published.LM_COLUMN:,} × 64 tokens for the language model and "
        f"{published.TAGGER_COLUMN:,} × 64 for the tagger. Columns of different lengths begin at different places of "
        "the text, so that from the second column on the two networks read different words at the same place of the "
        "array. The column “other words” shows the scores when ours are laid like that."
    )


def _within(sheet: Sheet, study: Study) -> None:
    for random in (False, True):
        sheet.figure(
            figures.grids(study, random=random),
            name="within-random" if random else "within",
            caption="The same in a network that has learned nothing." if random else "Rows and columns are layers.",
            alt="Maps of three scores between layers, in both layouts.",
        )
    for table in rows.grids(study):
        _shown(sheet, table, fold=table.caption)


CURVES: dict[str, tuple[str, str, str]] = {
    "final-lm": ("final", "lm", "The language model at each epoch, against itself at the end (figures 8 and 9)"),
    "final-tagger": ("final", "tagger", "The tagger at each epoch, against itself at the end (figures 11 and 12)"),
    "target": ("target", "tagger", "The tagger at each epoch, against the trained language model (figures 13 and 14)"),
    "epochs": ("epochs", "tagger", "Tagger and language model at the same epoch"),
}
"""The curves of the page: their kind, the network whose layers have lines, and the title."""


def _learning(sheet: Sheet, study: Study) -> None:
    for name, (kind, task, title) in CURVES.items():
        lefts = [f"{task}.{layer}" for layer in range(1, study.depth[task] + 1)]
        sheet.heading(title)
        for which in figures.CURVES:
            sheet.figure(
                figures.curves(study, kind, lefts, which, title=f"{title}: {which}"),
                name=f"{name}-{which.lower()}",
                caption="A line for each layer, with the same layer on the other side. Epoch 0 is the network before "
                "training; “random” is an untrained network with other weights.",
                alt=f"{which} by epoch, a line for each layer.",
            )
    sheet.note("Every number behind these figures is in curves.json.")


_PAGE: StudyPage[Study] = StudyPage(
    "thesis.html",
    "The thesis on SVCCA and CKA",
    {
        "What stands": ("Each claim of the thesis, judged by a stated rule from the numbers of this run.", _claims),
        "The trainings": (
            "How well both networks learned their task, beside the published scores and guessing.",
            _training,
        ),
        "What noise scores": ("In the layout of the thesis, numbers that have nothing in common score high.", _noise),
        "Tagger and language model": (
            "Tables 1 and 2 of the thesis, beside chance and untrained networks, in both layouts.",
            _between,
        ),
        "Within the language model": ("Figures 6, 7 and 10 of the thesis: which layers are alike.", _within),
        "While they learn": (
            "Figures 8, 9 and 11 to 14 of the thesis: each epoch against the end, and epoch by epoch.",
            _learning,
        ),
    },
    write,
)
