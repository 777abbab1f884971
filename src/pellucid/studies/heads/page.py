"""The page of the study of heads: one offline HTML file, drawn from the numbers of its cases alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.report.sheet import WIDTH, Sheet
from pellucid.studies.claims import CaseClaim, told
from pellucid.studies.heads import figures, rows
from pellucid.studies.heads.claims import claims
from pellucid.studies.heads.claims_layers import held_out_head
from pellucid.studies.heads.tables import CASES, Case, write
from pellucid.studies.heads.verdicts import all_heads, specialised
from pellucid.studies.study_page import StudyPage

Study = Sequence[Case]


def write_page(cases: Study, folder: str | Path, *, command: str | None = None) -> Path:
    """A new folder with heads.html, its tables and figures, and the numbers of the cases that it was drawn from."""
    models = ", ".join(figures.short_name(case) for case in cases)
    about = f"What attention heads do, which of them matter and how few are enough, in {models}."
    return _PAGE.write(cases, folder, about=about, reading=_reading(cases, command), command=command)


def _reading(cases: Study, command: str | None) -> list[str]:
    missing = [f"{name} ({CASES[name]})" for name in CASES if name not in {case.name for case in cases}]
    scales = ", ".join(dict.fromkeys(str(case.facts["about"]) for case in cases))
    notes = [note for case in cases for note in case.facts["notes"]]
    told_cases = [
        f"{case.name}: {case.facts['model']['name']} ({case.facts['model']['class']}), {len(all_heads(case))} heads; "
        f"gates from {case.facts['texts']['gates']}, chosen on {case.facts['texts']['chosen on']}, measured on "
        f"{case.facts['texts']['measured on']}."
        for case in cases
    ]
    judged = (
        "Every claim is judged on every case by a rule that is stated below the table. It stands where its number lies "
        "beyond what chance gives, does not stand where it lies on the other side, and cannot be told where chance "
        "lies in its interval (or it in the range of chance)."
    )
    known = (
        "Functions are those of the heads that read the text: all heads of a language model or an encoder, and the "
        "encoder's own of a translator. A head has a function where it has it on any of the texts. With grouped "
        "queries a head is a query head."
    )
    absent = [f"Not in this page: {', '.join(missing)}."] if missing else []
    made = [f"Made by: {command}"] if command else []
    return [f"This run: {scales}", *told_cases, *notes, *absent, judged, known, *made]


def _claims(sheet: Sheet, cases: Study) -> None:
    found = claims(cases)
    stand, fall, open_ = (sum(each.holds is holds for each in found) for holds in (True, False, None))
    sheet.text(
        f"{len({each.claim for each in found})} claims were judged {len(found)} times: {stand} stand, {fall} do not "
        f"stand, and {open_} cannot be told."
    )
    names = [case.name for case in cases]
    texts = list(dict.fromkeys(each.claim for each in found))
    verdicts = {(each.claim, each.case): each.verdict for each in found}
    table: list[tuple[str, ...]] = []
    for claim in texts:
        own = next(each for each in found if each.claim == claim)
        together = verdicts.get((claim, "lm and classify"))
        cells = [verdicts.get((claim, name), together if name != "translate" else None) or "–" for name in names]
        table.append((claim, *cells, own.published))
    columns = ("claim", *names, "published")
    sheet.table(columns, table, caption="What stands", name="verdicts")
    numbers = [(each.claim, each.case, each.verdict, each.found) for each in found]
    sheet.table(("claim", "case", "verdict", "numbers"), numbers, caption="The numbers", name="claims")
    sources = [(each.claim, each.source, each.rule) for each in _once(found)]
    sheet.table(("claim", "made by", "rule"), sources, caption="The rules", fold="The rules", name="rules")
    for case in cases:
        curve, left = case.curve, case.pruning.chosen
        kept = float(curve.kept[0, curve.counts.index(left)])
        special = specialised(case)
        sheet.highlight(
            f"{case.name}: heads that keep {kept:.0%}",
            f"{left} of {len(all_heads(case))}",
            chance=f"as many at random keep {float(curve.kept[2, curve.counts.index(left)]):.0%}",
        )
        most = max(drawn.specialised for drawn in case.random.values())
        sheet.highlight(
            f"{case.name}: specialised heads",
            f"{int(special.sum())} of {len(special)}",
            chance=f"random network {most}",
        )


def _once(found: Sequence[CaseClaim]) -> list[CaseClaim]:
    return list({each.claim: each for each in reversed(found)}.values())[::-1]


def _functions(sheet: Sheet, cases: Study) -> None:
    for case in cases:
        sheet.heading(figures.title_of(case))
        for text, result in case.functions.items():
            if not result.labels:
                sheet.note(f"On {text}, no head reaches the limits of any function.")
                continue
            caption = (
                f"{figures.short_name(case)} on {text} ({case.facts['texts'][f'read: {text}']}): every head in the "
                "colour of its main function, beyond what heads of a random network do; numbers are offsets, words "
                "relations."
            )
            name = f"functions-{case.name}-{text.replace(' ', '-').lower()}"
            sheet.figure(result.plot(width=WIDTH), name=name, caption=caption, alt=caption)
        columns = ("text", "function", "heads", "of", "95% interval of the share", "random network")
        sheet.table(
            columns,
            rows.function_rows(case),
            caption="Heads with each function, on every text, beyond what heads of a random network do; beside them "
            "those of another random network, by the same rule",
            name=f"functions-{case.name}",
            right=("heads", "of", "random network"),
        )
        skipped = rows.skipped_rows(case)
        if skipped:
            sheet.table(("text", "function", "why"), skipped, caption="What a text cannot show", fold="Not tried")


def _importance(sheet: Sheet, cases: Study) -> None:
    for case in cases:
        sheet.heading(figures.title_of(case))
        caption = (
            f"Every head of {figures.short_name(case)} by every method, on {case.facts['texts']['weighed on']}. "
            f"Chance: {case.importance.chance}."
        )
        sheet.figure(case.importance.plot(width=WIDTH), name=f"importance-{case.name}", caption=caption, alt=caption)
        sheet.table(
            ("method", "other method", "Spearman's ρ", "95% interval", "chance"),
            rows.agreement_rows(case),
            caption=f"How far the methods agree over all heads. Interval: {case.importance.resampled}.",
            name=f"agreement-{case.name}",
            right=("Spearman's ρ", "95% interval", "chance"),
        )


def _pruning(sheet: Sheet, cases: Study) -> None:
    caption = (
        "1 is the model as it is, 0 is guessing. Bands: intervals over documents; of random orders, the lowest and the "
        "highest. Gates learn on one text, the dotted line is the point chosen on a second, and all is measured on a "
        "third; the weights stay as they are."
    )
    sheet.figure(figures.kept(cases), name="kept", caption=caption, alt=caption)
    caption = "Dark heads are among the last that gates close. Squares: heads with a function."
    sheet.figure(figures.lasting_heads(cases), name="lasting", caption=caption, alt=caption)
    for case in cases:
        sheet.heading(figures.title_of(case))
        sheet.table(
            ("network", "score", "value", "chance", "kept", "95% interval of what is kept"),
            rows.score_rows(case),
            caption=f"Scores on {case.facts['texts']['measured on']}",
            name=f"scores-{case.name}",
            right=("value", "chance", "kept"),
        )
        written = rows.bleu_rows(case)
        if written:
            sheet.table(
                ("network", "BLEU", "95% interval", "change", "its interval", "sentences"),
                written,
                caption="Translations, greedy, beside one reference each",
                name=f"bleu-{case.name}",
                right=("BLEU", "95% interval", "change", "its interval", "sentences"),
            )
        elif case.written:
            sheet.note("BLEU needs the package sacrebleu, which is not installed; the translations are kept.")
        columns = ("heads left", "kept: gates", "by importance", "at random", "that read text", "specialised")
        sheet.table(
            (*columns, "by chance", "95% of draws"),
            rows.survivor_rows(case),
            caption="Survivors by function, beside a draw of as many heads from all that read text",
            name=f"survivors-{case.name}",
            right=(*columns, "by chance", "95% of draws"),
        )
        columns = ("heads left", "function", "heads", "left", "by chance", "95% of draws")
        sheet.table(
            columns,
            rows.survivor_function_rows(case),
            caption="Every function apart: how many heads that read text have it, how many of them are left, and how "
            "many a draw of as many heads would leave (hypergeometric). A head with several functions counts in each.",
            name=f"survivor-functions-{case.name}",
            right=[column for column in columns if column != "function"],
            fold="Survivors by each function",
        )
        stacks = rows.stack_rows(case)
        if stacks:
            columns = [str(cell) for cell in stacks[0]]
            sheet.table(
                columns,
                stacks[1:],
                caption="Heads left in every part of the network",
                name=f"parts-{case.name}",
                right=columns,
                fold="Heads left in every part of the network",
            )


def _pronouns(sheet: Sheet, cases: Study) -> None:
    sheet.text(
        "Generated sentences name two people and a pronoun that means one of them, told by its gender or by what is "
        "said. Half of the pronouns mean the first, so that a head which looks at the first person, or the nearest, "
        "finds antecedent and rival alike."
    )
    caption = "Mean over the heads of each layer; bands are intervals over sentences."
    sheet.figure(figures.pronoun_lines(cases), name="pronoun-layers", caption=caption, alt=caption)
    caption = "Every head: share of pronouns whose largest weight is on the antecedent, less the share on the rival."
    sheet.figure(figures.pronoun_maps(cases), name="pronoun-heads", caption=caption, alt=caption)
    for case in cases:
        apart, one, other, head = held_out_head(figures.all_links(case))
        sheet.text(
            f"{figures.title_of(case)}: head {head}, chosen on other sentences than it is counted on, finds the "
            f"antecedent in {told(one, per_cent=True)}; the rival in {told(other, per_cent=True)}; difference "
            f"{told(apart, per_cent=True)}."
        )
        sheet.table(
            ("told by", "head", "antecedent", "rival", "chance", "pronouns"),
            rows.pronoun_rows(case),
            caption="The heads that prefer the antecedent most. The first of many are the best by luck, too: trust the "
            "sentence above.",
            name=f"pronouns-{case.name}",
            right=("antecedent", "rival", "chance", "pronouns"),
        )


def _layers(sheet: Sheet, cases: Study) -> None:
    texts = "; ".join(f"{case.name}: {case.facts['layers read on']}" for case in cases)
    sheet.note(f"Read on: {texts}. Bands are intervals over documents.")
    for name, title, label in (
        ("distance", "How far attention looks, by layer", "mean distance in words"),
        ("neighbours", "Attention on syntactic neighbours, by layer", "mean share of attention"),
    ):
        figure = figures.profile_lines(cases, name, title=title, label=label)
        sheet.figure(figure, name=name, caption=f"{title}, beside a random network.", alt=title)
    caption = "Which parts of speech attention goes to, above uniform attention."
    sheet.figure(figures.tag_maps(cases), name="tags", caption=caption, alt=caption)
    sheet.table(
        ("case", "measure", "layer", "value", "95% interval", "random network", "uniform attention"),
        [row for case in cases for row in rows.profile_rows(case)],
        caption="Every number of these figures",
        name="layers",
        right=("value", "95% interval", "random network", "uniform attention"),
        fold="Every number of these figures",
    )


def _keep(cases: Study, folder: Path) -> None:
    for case in cases:
        write(case, folder)


_PAGE: StudyPage[Study] = StudyPage(
    "heads.html",
    "Specialised heads, and the rest",
    {
        "What stands": ("Published claims about heads, each judged on every case by a stated rule.", _claims),
        "Functions": ("Which heads look at a fixed offset, a syntactic neighbour or rare words.", _functions),
        "Importance": (
            "Which heads the models need for their tasks, by several methods, and whether they agree.",
            _importance,
        ),
        "Fewer heads": ("How few heads are enough, which they are, and whether they have functions.", _pruning),
        "Pronouns": ("Whether heads link pronouns to whom they mean, on a set of sentences.", _pronouns),
        "By layer": (
            "How far attention looks, whether it follows syntax, and at which words, layer by layer.",
            _layers,
        ),
    },
    _keep,
)
