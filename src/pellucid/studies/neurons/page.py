"""The page of the study of neurons: one offline HTML file, drawn from the numbers of its models alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.errors import listing
from pellucid.report.sheet import Sheet
from pellucid.studies.neurons import figures, rows
from pellucid.studies.neurons.claims import NEAR, SMALL, claims
from pellucid.studies.neurons.tables import BARS, CONCEPTS, FORMAT, Case, write
from pellucid.studies.study_page import StudyPage

Study = Sequence[Case]


def write_page(cases: Study, folder: str | Path, *, command: str | None = None) -> Path:
    """A new folder with neurons.html, its tables and figures, and the numbers of the models that it was drawn from."""
    models = ", ".join(case.model for case in cases)
    about = f"Which neurons carry linguistic concepts, how few are enough, and which rankings to believe, in {models}."
    return _PAGE.write(cases, folder, about=about, reading=_reading(cases, command), command=command)


def _reading(cases: Study, command: str | None) -> list[str]:
    scales = ", ".join(dict.fromkeys(str(case.facts["about"]) for case in cases))
    told = [
        f"{case.model} ({case.facts['model']['class']}): {case.neurons:,} neurons of "
        f"{len(case.facts['sites']['stream'])} sites of the stream; ranked on {case.facts['texts']['ranked on']}, "
        f"{case.facts['counts']['ranked']['words']:,} words, judged on {case.facts['texts']['judged on']}, "
        f"{case.facts['counts']['judged']['words']:,} words; rankings compared at "
        f"{', '.join(case.facts['sites']['compared'])}."
        for case in cases
    ]
    judged = (
        "Every claim is judged on every model by a rule that is stated below the table. It stands where its number "
        "lies beyond what chance gives, does not stand where it lies on the other side, and cannot be told where "
        "chance lies in its interval (or it in the range of chance)."
    )
    apart = "Neurons are ranked on some documents and judged on others; probes are tested on documents of their own."
    old = [
        f"{case.model}: numbers of an older Pellucid (format {case.format}, now {FORMAT}); what they lack is left out, "
        "or cannot be told."
        for case in cases
        if case.format < FORMAT
    ]
    made = [f"Made by: {command}"] if command else []
    return [f"This run: {scales}", *told, *old, judged, apart, *made]


def _claims(sheet: Sheet, cases: Study) -> None:
    found = claims(cases)
    stand, fall, open_ = (sum(each.holds is holds for each in found) for holds in (True, False, None))
    sheet.text(
        f"{len({each.claim for each in found})} claims were judged {len(found)} times: {stand} stand, {fall} do not "
        f"stand, and {open_} cannot be told."
    )
    verdicts = [row[:-1] for row in rows.verdict_rows(found, cases)]
    sheet.table(("claim", *(case.model for case in cases)), verdicts, caption="What stands", name="verdicts")
    once = list({each.claim: each for each in reversed(found)}.values())[::-1]
    sources = [(each.claim, each.published, each.source, each.rule) for each in once]
    columns = ("claim", "published", "where", "rule")
    told = "What was published, where, and the rules"
    sheet.table(columns, sources, caption=told, fold=told, name="rules")
    models = {case.name: case.model for case in cases}
    numbers = [(each.claim, models.get(each.case, each.case), each.verdict, each.found) for each in found]
    told = "The numbers that claims were judged by"
    sheet.table(("claim", "model", "verdict", "numbers"), numbers, caption=told, fold=told, name="claims")
    for case in cases:
        grid = case.grids["probe pos"]
        every = str(grid.columns[0])
        sheet.highlight(
            f"Part of speech told in {case.model}",
            f"{grid.at('accuracy', every).value:.0%}",
            chance=f"control task {grid.at('control task', every).value:.0%}",
        )


def _layers(sheet: Sheet, cases: Study) -> None:
    for concept, told in CONCEPTS.items():
        caption = (
            f"Accuracy of a probe of the {told} on each site of the stream (0: embeddings). Bands: intervals over "
            "documents for testing."
        )
        sheet.figure(figures.layers(cases, concept), name=f"layers-{concept}", caption=caption, alt=caption)
    columns = ("accuracy", "95% interval", "most frequent class", "random model", "control task", "selectivity")
    sheet.table(
        ("model", "concept", "site", *columns, "its interval"),
        rows.layer_rows(cases),
        caption="Every number of these figures",
        name="layers",
        right=(*columns, "its interval"),
        fold="Every number of these figures",
    )


def _sets(sheet: Sheet, cases: Study) -> None:
    sheet.table(
        ("model", "concept", "neurons", "accuracy of all", "within 1%", "within 2%", "within 5%"),
        rows.smallest_rows(cases),
        caption="The smallest set of a probe's first neurons that is enough, and its accuracy: chosen by three "
        "folds of the documents to learn from, tested on others",
        name="smallest",
        right=("neurons", "accuracy of all", "within 1%", "within 2%", "within 5%"),
    )
    for case in cases:
        caption = (
            f"{case.model}: probes of the part of speech trained on few of {case.neurons:,} neurons alone; all of them "
            f"reach {case.numbers['whole pos'].value:.1%}."
        )
        sheet.figure(figures.sets(case, "pos"), name=f"sets-{case.name}", caption=caption, alt=caption)
    beside = ("most frequent class", "random model", "control task")
    sheet.table(
        ("model", "concept", "accuracy of all", *beside),
        rows.control_rows(cases),
        caption="The probes that few neurons are judged by, with all neurons that they read, beside their controls",
        name="set-controls",
        right=("accuracy of all", *beside),
        fold="The controls of these probes",
    )
    columns = ("neurons", "share", "first", "95% interval", "random", "last", "kept of all", *beside)
    sheet.table(
        ("model", "concept", *columns),
        rows.set_rows(cases),
        caption="Accuracy of probes of few neurons (one probe of each set: other seeds leave out other documents); "
        "random model: as many of its neurons, drawn at random",
        name="sets",
        right=columns,
        fold="Every number of these figures",
    )
    sheet.note(f"Published: {SMALL:.0%} match the accuracy of all for parts of speech; here {NEAR:.0%} of it counts.")


def _where(sheet: Sheet, cases: Study) -> None:
    caption = "The share of the first 5% of a probe's neurons at each site of the stream."
    sheet.figure(figures.where(cases), name="where", caption=caption, alt=caption)
    sheet.table(
        ("model", "concept", "site", "share of the first", "95% interval", "of all neurons"),
        rows.site_rows(cases),
        caption="Where first neurons stand; sub-layers: what attention adds and the MLP's hidden units, by d′",
        name="where",
        right=("share of the first", "95% interval", "of all neurons"),
        fold="Every number, and sub-layers",
    )


def _classes(sheet: Sheet, cases: Study) -> None:
    models = [case.model for case in cases]
    caption = "Effective number of neurons of each class, in doublings of the mean over a model's classes."
    sheet.figure(figures.classes(cases), name="classes", caption=caption, alt=caption)
    sheet.table(
        ("class", "kind", *models),
        rows.class_rows(cases),
        caption="Effective number of neurons of each class: exp of the entropy of its weights in a probe",
        name="classes",
        right=models,
    )
    sheet.table(
        ("model", "classes", "neurons", "by chance"),
        rows.polysemy_rows(cases),
        caption="How many neurons are among the first 2% of so many classes",
        name="polysemy",
        right=("classes", "neurons", "by chance"),
        fold="How many classes a neuron serves",
    )
    sheet.table(
        ("model", "average precision from", "experts", "95% interval", "random network"),
        rows.expert_rows(cases),
        caption=f"Experts: neurons whose average precision for any class is {BARS[0]} or more; intervals: all "
        "precisions at the ends of their own, over document groups",
        name="experts",
        right=("average precision from", "experts", "95% interval", "random network"),
    )


def _methods(sheet: Sheet, cases: Study) -> None:
    caption = "Rankings by several methods, made on other documents, beside random neurons."
    sheet.figure(figures.faithful(cases), name="faithful", caption=caption, alt=caption)
    columns = ("probe: first", "95% interval", "last", "random")
    beside = ("model: first less random", "its interval", "last less random")
    sheet.table(
        ("model", "ranking", *columns, *beside),
        rows.faithful_rows(cases),
        caption="A probe with 5% of the neurons alone (accuracy), and the model's own task without them: loss in nats "
        "per goal, or errors of a tagger",
        name="faithful",
        right=(*columns, *beside),
    )
    without = [case.model for case in cases if case.facts["task"] is None]
    if without:
        sheet.note(f"{listing(without)}: {rows.NO_TASK}")
    sheet.table(
        ("model", "task", "score", "as it is", "without random neurons", "sentences"),
        rows.task_rows(cases),
        caption="The models' own tasks",
        name="tasks",
        right=("as it is", "without random neurons", "sentences"),
    )
    models = [case.model for case in cases]
    sheet.table(
        ("ranking", "other ranking", *models),
        rows.agreement_rows(cases),
        caption="How far rankings agree: Jaccard of their first 5%",
        name="agreement",
        right=models,
    )
    sheet.table(
        ("model", "ranking", "first neurons", "agreement", "95% interval", "two random orders"),
        rows.stability_rows(cases),
        caption="How far a ranking agrees with itself on other documents: mean Jaccard over pairs of parts",
        name="stability",
        right=("first neurons", "agreement", "95% interval", "two random orders"),
    )


def _keep(cases: Study, folder: Path) -> None:
    for case in cases:
        write(case, folder)


_PAGE: StudyPage[Study] = StudyPage(
    "neurons.html",
    "Neurons and the concepts they carry",
    {
        "What stands": ("Published findings about neurons, each judged on every model by a stated rule.", _claims),
        "By layer": ("What a probe tells from each layer, beside its controls.", _layers),
        "How few are enough": ("Probes trained on the first neurons of a ranking alone.", _sets),
        "Where they stand": ("Layers and sub-layers of the first neurons.", _where),
        "Classes": ("Which classes take few neurons, which neurons serve several, and which are experts.", _classes),
        "Which ranking to believe": (
            "Whether the first neurons of a ranking matter to a probe and to the model, and whether rankings agree.",
            _methods,
        ),
    },
    _keep,
)
