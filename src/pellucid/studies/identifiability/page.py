"""The page of the study of identifiability: one offline HTML file, drawn from the numbers of its models alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.report.sheet import Sheet
from pellucid.studies.claims import CaseClaim
from pellucid.studies.identifiability import answers, figures, rows
from pellucid.studies.identifiability.claims import QUESTIONS, claims
from pellucid.studies.identifiability.measures import ATTENTION
from pellucid.studies.identifiability.tables import Case, write
from pellucid.studies.study_page import StudyPage

Study = Sequence[Case]
_NUMBERS = ("model", "measure", "at", "value", "95% interval", "chance", "random network")
_RIGHT = ("value", "95% interval", "chance", "random network")


def write_page(cases: Study, folder: str | Path, *, command: str | None = None) -> Path:
    """A new folder with identifiability.html, its tables and figures, and the numbers that it was drawn from."""
    about = f"What attention and hidden states can and cannot tell, in {', '.join(case.name for case in cases)}."
    return _PAGE.write(cases, folder, about=about, reading=_reading(cases, command), command=command)


def _reading(cases: Study, command: str | None) -> list[str]:
    scales = ", ".join(dict.fromkeys(str(case.facts["about"]) for case in cases))
    told = [
        f"{case.name}: attention on {read['read']} and {read['passages']}; tokens in {read['told']}, a fifth of its "
        f"documents asked about; mixing in {read['mixed']}."
        for case in cases
        if (read := case.facts["texts"])
    ]
    judged = (
        "Every claim is judged on every model by a rule that is stated below the table. It stands where the interval "
        "of its number lies beyond chance or the limit, does not stand where it lies on the other side, and cannot be "
        "told where they lie in the interval. Intervals leave out documents, in up to ten groups."
    )
    known = (
        "A query of a causal model sees its prefix alone, so that the same text has fewer keys in sight. The random "
        "network has the same shape and weights as before any training."
    )
    made = [f"Made by: {command}"] if command else []
    return [f"This run: {scales}", *told, judged, known, *made]


def _claims(sheet: Sheet, cases: Study) -> None:
    found = claims(cases)
    stand, fall, open_ = (sum(each.holds is holds for each in found) for holds in (True, False, None))
    sheet.text(
        f"{len(QUESTIONS)} claims were judged {len(found)} times: {stand} stand, {fall} do not stand, and {open_} "
        "cannot be told."
    )
    verdicts = {(each.claim, each.case): each.verdict for each in found}
    names = [case.name for case in cases]
    table = [(each.claim, *(verdicts[each.claim, name] for name in names), each.published) for each in QUESTIONS]
    sheet.table(("claim", *names, "published"), table, caption="What stands", name="verdicts")
    numbers = [(each.claim, each.case, each.verdict, each.found) for each in found]
    sheet.table(("claim", "model", "verdict", "numbers"), numbers, caption="The numbers", name="claims")
    rules = [(each.claim, each.source, each.rule) for each in QUESTIONS]
    sheet.table(("claim", "made by", "rule"), rules, caption="The rules", fold="The rules", name="rules")
    for case in cases:
        _highlight(sheet, case, [each for each in found if each.case == case.name])
    columns = ("parameters", "layers", "head width", "queries", "tokens asked about", "tokens mixed")
    right = (*columns, "directions", "error")
    sheet.table(
        ("model", *right),
        rows.model_rows(cases),
        caption="The models and what was read. Norms come from so many directions for each token, with this error.",
        name="models",
        right=right,
    )


def _highlight(sheet: Sheet, case: Case, found: Sequence[CaseClaim]) -> None:
    by_claim = {each.claim: each.number for each in found}
    told, largest = (
        next(by_claim[each.claim] for each in QUESTIONS if each.answer is answer)
        for answer in (answers.mostly, answers.not_largest)
    )
    chance = float(case.curves["tokens"].chance.mean())
    sheet.highlight(f"{case.name}: tokens found again, at least", f"{told.value:.0%}", chance=f"chance {chance:.1%}")
    sheet.highlight(
        f"{case.name}: not their own largest contributor",
        f"{largest.value:.0%}",
        chance=f"equal shares {largest.chance:.0%}; published {answers.PUBLISHED:.0%}",
    )


def _attention(sheet: Sheet, cases: Study) -> None:
    sheet.text(
        "A head's output is a sum of values, weighted by attention. With more keys in sight than values are wide, "
        "other weights give the same output. Effective attention is what is left of the weights without the part that "
        "has no effect; its absolute values are made to sum to one before they are compared."
    )
    for name, draw in (
        ("null-space", figures.null_space),
        ("effect-lengths", figures.by_length),
        ("effect-layers", figures.by_depth),
    ):
        caption = "Means over all heads (and layers) of a model; bands are intervals over documents."
        sheet.figure(draw(cases), name=name, caption=caption, alt=name.replace("-", " "))
    for name, title in (("lengths", "by length"), ("depth", "by layer"), ("sentences", "on sentences, by layer")):
        _numbers(sheet, cases, name, f"Attention {title}", ATTENTION)


def _tokens(sheet: Sheet, cases: Study) -> None:
    sheet.text(
        "The state of a token after a layer is mapped to the input, and the nearest input among the tokens of the text "
        "is looked up. Maps are fitted on other documents than are asked about."
    )
    for distance in ("cosine", "l2"):
        caption = (
            "The state as it is (identity), a linear map, and a perceptron at some layers. Chance is a random place of "
            "the text."
        )
        sheet.figure(
            figures.tokens(cases, distance), name=f"tokens-{distance}", caption=caption, alt=f"tokens by {distance}"
        )
    right = ("perceptron", "linear", "difference", "95% interval", "chance")
    sheet.table(
        ("model", "layer", "distance", *right),
        rows.perceptron_rows(cases),
        caption="Perceptrons beside linear maps: share of tokens found again",
        name="perceptrons",
        right=right,
    )
    _numbers(sheet, cases, "tokens", "Tokens found again", None)


def _mixing(sheet: Sheet, cases: Study) -> None:
    sheet.text(
        "What an input token contributes to a state is the norm of the derivative of the state by it, over the sum of "
        "all. Layer 0 is the input itself."
    )
    for measure, (title, _) in figures.MIXING.items():
        name = f"mixing-{measure.replace(' ', '-')}"
        caption = f"{title}. Bands are intervals over documents."
        sheet.figure(figures.mixing(cases, measure), name=name, caption=caption, alt=title)
    caption = (
        "Mean contribution by distance; the token itself stands at 0. A causal model has nothing after it. Bands are "
        "intervals over documents."
    )
    sheet.figure(figures.offsets(cases), name="offsets", caption=caption, alt="contributions by distance")
    _numbers(sheet, cases, "mixing", "Mixing", None)


def _flow(sheet: Sheet, cases: Study) -> None:
    if not any("flow" in case.curves for case in cases):
        sheet.text("These numbers were computed before maps of attention belonged to the study; compute them again.")
        return
    sheet.text(
        "At every position the tokens in sight are ranked by a map of attention and by what the state reacts to, and "
        "Spearman's correlation is averaged over positions. Chance is 0. Grey lines are maps that look at no weights, "
        "and the most that any map could reach, since norms are estimated."
    )
    caption = (
        "Bands are intervals over documents. Attribution is of what a model predicts, where it predicts one thing."
    )
    sheet.figure(figures.flow(cases), name="flow", caption=caption, alt="rank correlations by layer")
    _numbers(sheet, cases, "flow", "Maps of attention", None)


def _numbers(sheet: Sheet, cases: Study, name: str, title: str, measures: Sequence[str] | None) -> None:
    """Every number of a curve, folded."""
    made = [row for case in cases if name in case.curves for row in rows.curve_rows(case, case.curves[name], measures)]
    told = f"{title}: every number"
    sheet.table(_NUMBERS, made, caption=told, name=f"numbers-{name}", right=_RIGHT, fold=told)


def _keep(cases: Study, folder: Path) -> None:
    for case in cases:
        write(case, folder)


_PAGE: StudyPage[Study] = StudyPage(
    "identifiability.html",
    "Identifiability in transformers",
    {
        "What stands": ("Published claims, each judged on every model by a stated rule.", _claims),
        "Attention that could be other": ("Whether weights are unique, and what they are without effect.", _attention),
        "Telling tokens from states": ("Whether a state still says which token it belongs to.", _tokens),
        "How far tokens mix": ("What every state reacts to: its own input, or that of other tokens.", _mixing),
        "Maps of attention": ("Whether they rank tokens as the states react to them.", _flow),
    },
    _keep,
)
