"""Documents of the JSON contracts, drawn as tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from rich.markup import escape
from rich.text import Text

from ..errors import REASONS
from ..results import Section, names_of_bases
from .console import NAMES, has_room, print_table, screen
from .text import cell_text, count, duration, plain, share, size

Document = Mapping[str, Any]

MODEL_COLUMNS = ("model", "status", "code", "dataset", "author", "run")

NEIGHBOUR_COLUMNS = (
    "rank",
    "model",
    "verdict",
    "probability",
    "z",
    "fdr",
    "cosine",
    "dataset",
    "author",
)

EVIDENCE_OF_DATA = ("verdict", "probability", "z", "±", "fdr", "cosine")

COMPARED = {
    "sha256": "compared with a listed SHA-256",
    "crc": "compared with a CRC",
    "unverified": "not compared with what is listed",
    "nothing listed": "without a listed checksum (files on disk)",
}
"""How bytes were compared, in words."""

NULL = "the null alone"
"""The source of a calibration in a family that is too small for another."""

NOTHING_STANDS_OUT = "no model stands out"
"""The verdict of a neighbour that is as near as strangers are."""

FROM_DATA = "probability from families like it; lower where labels of near models disagree"

MEMBERS_SHOWN = 3
NOTES_SHOWN = 5
SUGGESTIONS_SHOWN = 50


def _say(line: str | Text, style: str | None = None) -> None:
    screen().print(line, style=style)


def _say_rows(
    heads: Sequence[str],
    rows: Sequence[Sequence[object] | Document],
    *,
    names: Collection[str] = NAMES,
) -> None:
    """A table of cells in the order of the heads, or of documents that have them as keys."""
    cells = ([row[head] for head in heads] if isinstance(row, Mapping) else row for row in rows)
    print_table(heads, _texts(cells), names=names)


def _texts(rows: Iterable[Sequence[object]]) -> list[list[str]]:
    return [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]


def _say_evidence(heads: Sequence[str], rows: Iterable[Document]) -> None:
    """A table of names and numbers."""
    print_table(heads, [[_evidence(head, row) for head in heads] for row in rows])


def _evidence(head: str, row: Document) -> str:
    """A cell of a table of evidence."""
    match head:
        case "verdict":
            return str(row["verdict"]) if _stands_out(row) else ""
        case "control":
            return f"z {row['control']['z']:.1f}" if row["control"] else ""
        case "95 %":
            return f"{row['low']:+.2f} … {row['high']:+.2f}"
        case "p":
            return "< .001" if row["p"] < 0.001 else f"{row['p']:.3f}".lstrip("0")
    key, form = _NUMBERS.get(head, (head, str))
    value = row.get(key)
    return "" if value is None else plain(form(value))


def _rate(value: float) -> str:
    """0.0123 → `1.3 %`, rounded up so that no rate is shown below the limit that it missed."""
    tenths = ceil(round(1000 * value, 6))
    if value < 0.001:
        return "<0.1 %"
    return f"{tenths / 10:.1f} %" if tenths < 100 else _percent(value)


_NUMBERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "z": ("z", "{:.1f}".format),
    "±": ("z_error", "{:.1f}".format),
    "touched": ("touched", "{:,}".format),
    "missing": ("missing", "{:,}".format),
    "by chance": ("missing_by_chance", "{:,.0f}".format),
    "fdr": ("fdr", _rate),
    "probability": ("probability", "{:.2f}".format),
    "cosine": ("cosine", share),
    "effect": ("effect", "{:+.2f}".format),
}
"""The key of a column of evidence, and how its numbers are written."""


def _stands_out(neighbour: Document) -> bool:
    return bool(neighbour["verdict"] != NOTHING_STANDS_OUT)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _text(value: object) -> str:
    return "" if value is None else escape(plain(str(value)))


def show_report(document: Document) -> None:
    """What an indexing run did, and every model it refused; of several families one by one."""
    if "families" in document:
        for family in document["families"]:
            show_report(family)
        reasons = Counter(row["reason"] for row in document["left_out"])
        for reason, n in reasons.most_common():
            _say(f"[yellow]{count(n, 'model')} left out[/]: {_text(reason)}")
        return
    refused = len(document["failed"])
    partly = document.get("partly_read", [])
    indexed = f"[bold]{document['indexed']}[/] indexed"
    if partly:
        indexed += f" ([yellow]{len(partly)} on part of their matrices[/])"
    parts = [indexed, f"{document['unchanged']} unchanged"]
    if document["skipped_models"]:
        parts.append(f"{len(document['skipped_models'])} skipped")
    if refused:
        parts.append(f"[yellow]{refused} not indexed[/]")
    base_read = document["base_bytes_read"]
    of_models, wanted = document["bytes_read"] - base_read, document["bytes_wanted"]
    read = f"{size(of_models)} {f'of {size(wanted)} ' * (of_models <= wanted)}read"
    if base_read:
        read += f", and {size(base_read)} of the base"
    _say(f"{_text(document['base'])}: {', '.join(parts)} · {read} in {document['seconds']:.1f} s")
    if partly:
        notes = Counter(row["note"] for row in partly)
        said = "; ".join(
            f"{note}" + f" ({count(n, 'model')})" * (len(notes) > 1)
            for note, n in notes.most_common(NOTES_SHOWN)
        )
        rest = "model rests on part of its" if len(partly) == 1 else "models rest on part of their"
        _say(
            f"[yellow]{len(partly)} {rest} matrices[/]: "
            f"{_text(said)}{' …' * (len(notes) > NOTES_SHOWN)}"
        )
    if labels := document.get("labels"):
        _say(f"labels: {count(labels['rows'], 'row')}, {labels['matched']} matched", "dim")
    if guessed := document.get("labels_guessed"):
        _say(
            f"{count(guessed, 'label')} guessed from names of models: --labels FILE or `deltadex "
            "label` overrides",
            "dim",
        )
    rows = [*document["failed"], *document["skipped_models"]]
    if rows:
        _say_rows(("model", "code", "reason"), rows)
    if closed := sum(REASONS[row["code"]].by_rights for row in rows):
        _say(
            f"{count(closed, 'model')} not open to you: ask for access to gated ones on their "
            "pages, set HF_TOKEN to a token that may read them, and run again"
        )


def show_neighbours(document: Document) -> None:
    """A query's nearest models, which of them stand out, and how the fdr is known."""
    query, neighbours = document["query"], document["neighbours"]
    label = f" ({_text(query['dataset'])})" if query["dataset"] else ""
    _say(f"nearest to [bold]{_text(query['model'])}[/]{label} · recipe {document['recipe']}")
    if not neighbours:
        _say("no other model passes the filters")
        return
    calibration = document["calibration"]
    is_small = calibration["source"] == NULL
    _say(f"[bold]{_headline(neighbours, document['compared'], is_small=is_small)}[/]")
    known = _calibrated(calibration)
    if not is_small:
        known += f", a verdict needs {calibration['verdict_from']:.2f}"
        known += _gap(neighbours, calibration)
    _say(f"{known}; fdr: of all answers up to here", "dim")
    _show_suspects(document["suspects"])
    is_joint = any(n.get("source") for n in neighbours)
    _say_evidence((*NEIGHBOUR_COLUMNS, *(["source"] if is_joint else [])), neighbours)


def _calibrated(calibration: Document) -> str:
    """What probabilities are known from."""
    match calibration["source"]:
        case "labelled models of the family":
            models = count(calibration["queries"], "labelled model")
            return f"probability from {models}, {count(calibration['datasets'], 'dataset')}"
        case "families like it":
            return "probability from families like it: too few labels of its own"
    return (
        f"no probability: {count(calibration['models'], 'model')} are too few, "
        f"{calibration['models_needed']} are needed, and fdr is too low in a family as small"
    )


def _gap(neighbours: Sequence[Document], calibration: Document) -> str:
    """The gap below rows that have a verdict by it alone."""
    least = calibration["verdict_from"]
    clear = [n for n in neighbours if n["verdict"] == "perhaps" and n["probability"] < least]
    if not clear:
        return ""
    beside = [row["z"] for row in neighbours[clear[-1]["rank"] - 1 :][:2]]
    return f" or a clear gap below (z {', then '.join(f'{z:.1f}' for z in beside)})"


def _show_suspects(suspects: Sequence[Document]) -> None:
    """Labels that contradict the distances."""
    for row in suspects:
        _say(
            f"[yellow]label in doubt[/]: {_text(row['model'])} is labelled {_text(row['dataset'])} "
            f"(z {row['own_z']:.1f}), and nearer to {_text(row['nearer'])} (z {row['z']:.1f})"
        )


def _headline(neighbours: Sequence[Document], compared: int, *, is_small: bool) -> str:
    """How many of the neighbours stand out, by verdict; or that the family is too small to tell.

    Where the last of them stands out and is not the last model that was compared, more may.
    """
    counts = Counter(n["verdict"] for n in neighbours if _stands_out(n))
    if not counts and is_small:
        return f"too few models to tell: no verdict among {compared} compared"
    if not counts:
        return f"no model stands out among {compared} compared"
    last = neighbours[-1]["verdict"] if len(neighbours) < compared else None
    parts = (
        f"{verdict}: {count(n, 'model', or_more=verdict == last)}" for verdict, n in counts.items()
    )
    return f"{', '.join(parts)}, of {compared} compared"


def show_explanation(document: Document, *, rows: int = 8) -> None:
    """Which roles, layers and slots carry the cosine of two models."""
    _say(f"\n[bold]{_text(document['model'])}[/]: cosine {document['similarity']:.3f}, carried by")
    for title, name in (("role", "role"), ("layer", "layer"), ("feature", "block")):
        ranked = sorted(document[f"by_{name}"], key=lambda t: -t["contribution"])[:rows]
        shown = ", ".join(f"{_text(t[name])} {_percent(t['share'])}" for t in ranked)
        _say(f"  {title:8}{shown}")
    slots = ", ".join(f"{s['slot']} {_percent(s['share'])}" for s in document["slots"][:rows])
    _say(f"  {'slot':8}{slots}")
    for key, whose in (("only_query", "the query"), ("only_model", "this model")):
        if document[key]:
            _say(f"  {count(len(document[key]), 'slot')} changed only by {whose}")


def show_models(
    document: Document,
    *,
    columns: Sequence[str] = MODEL_COLUMNS,
    wide: bool = False,
    counts_rest: bool = False,
) -> None:
    """One line per model, as `show_rows`; with `counts_rest` one line for all that are not
    indexed, and a column of the bases that adapters name, if these are others."""
    shown = models = document["models"]
    rest: list[Document] = []
    if counts_rest and (indexed := [m for m in models if m["status"] == "indexed"]):
        shown, rest = indexed, [model for model in models if model["status"] != "indexed"]
        columns = [column for column in columns if column not in ("status", "code")]
    if counts_rest and any(m["kind"] == "adapter" and _names_another_base(m) for m in shown):
        columns = [*columns, "base_raw"]
    labelled = [model | {"dataset": _marked_label(model)} for model in shown]
    show_rows(columns, [[model[column] for column in columns] for model in labelled], wide=wide)
    total = document.get("total", len(models))
    if total > len(models):
        _say(f"{len(models)} of {count(total, 'model')}", "dim")
    if rest:
        codes = Counter(model["code"] for model in rest).most_common()
        reasons = ", ".join(f"{n} {code}" for code, n in codes)
        _say(f"not indexed: {reasons} (`deltadex failures`)", "dim")


def _marked_label(model: Document) -> str | None:
    """A model's data set, with a mark where it is guessed from the name, or where its card names a
    collection and not the part."""
    label, raw, source = (model.get(name) for name in ("dataset", "dataset_raw", "label_source"))
    if source == "name":
        return f"{label} (guess)" if raw in (None, label) else f"{label} (guess; card: {raw})"
    if label is None and raw and source is None:
        return f"{raw} (which part?)"
    return label if label is None else str(label)


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: bool = False
) -> None:
    """One line per row, shortened to the width of the terminal unless `wide`."""
    lines = [[cell_text(value) for value in row] for row in rows]
    print_table(columns, lines, wide=wide, names=columns)


def show_model(document: Document) -> None:
    """Everything known of one model, and its slots."""
    for key, value in document.items():
        if key != "slots" and value not in (None, [], (), ""):
            lines = value if isinstance(value, list | tuple) else [value]
            if key == "words":
                lines = [", ".join(value)]
            for heading, line in zip((key, *[""] * len(lines)), lines, strict=False):
                _say(f"[dim]{heading:>15}[/]  {_text(_in_units(key, line))}")
    rows = [
        (
            s["slot"],
            "×".join(map(str, s["shape"])),
            f"{s['fro_norm']:.3g}",
            "–" if s["relative_norm"] is None else f"{s['relative_norm']:.2e}",
            f"{s['stable_rank']:.1f}",
            share(s["energy"]),
            f"{s['noise_floor']:.1e}",
        )
        for s in document["slots"]
    ]
    if rows:
        heads = ("slot", "shape", "|ΔW|", "|ΔW|/|W|", "stable rank", "kept of |ΔW|²", "|rounding|")
        _say_rows(heads, rows)


def _in_units(key: str, value: object) -> object:
    """A value of a model as people write it: sizes, and seconds without the digits of a float."""
    if isinstance(value, int) and key.startswith("bytes_"):
        return size(value)
    return f"{value:.2f}" if isinstance(value, float) else value


def show_stats(document: Document) -> None:
    """Counts of the whole catalog."""
    _say(f"{_text(document['path'])} · {size(document['bytes'])}")
    _say_rows(("base", "models", "indexed", "labelled", "datasets"), document["bases"])
    recipes = [recipe | {"recipe": recipe["id"]} for recipe in document["recipes"]]
    if recipes:
        _say_rows(("base", "recipe", "rank", "dim", "models"), recipes)
    if indexed := sum(document["verified"].values()):
        shares = (
            f"{_percent(n / indexed)} {COMPARED[way]}" for way, n in document["verified"].items()
        )
        _say(f"bytes of weight files, by models: {', '.join(shares)}")
    if "content_sha256" in document:
        _say(f"content: sha256 {document['content_sha256']}")


def show_failures(document: Document) -> None:
    """Refused models, grouped by reason."""
    if not document["failures"]:
        _say("no failures")
    for group in document["failures"]:
        about = f"{group['meaning']} · {len(group['models'])}"
        status = "" if group["status"] == group["code"] else f" ({group['status']})"
        _say(f"[bold]{group['code']}[/]{status}: {about}")
        for model in group["models"]:
            reason = "" if model["reason"] == group["meaning"] else model["reason"]
            parts = [reason, f"names {model['base_raw']}" if _names_another_base(model) else ""]
            said = " · ".join(filter(None, parts))
            _say(f"  {_text(model['model'])}" + f": [dim]{_text(said)}[/]" * bool(said))


def _names_another_base(model: Document) -> bool:
    """Whether a model's files name its base by another name than the family's."""
    named = model.get("base_raw")
    return named is not None and named != model["base"] and named not in (model.get("reason") or "")


def show_study(sections: Iterable[Section], document: Document) -> None:
    """A study's sections, the models that could not be studied, and what is said of bases."""
    note = ""
    for section in sections:
        shown, left = _as_wide_as_the_screen(section)
        left_out = ""
        if left:
            names = ", ".join(map(str, left))
            left_out = f"  not shown: {section.noun} {names} (--json has them)"
        if note and left_out and note != left_out:
            _say(note, "dim")
        if shown.title:
            _say(Text(plain(shown.title)), "bold")
        if shown.rows:
            _say_rows([plain(str(head)) for head in shown.columns], shown.rows)
        for line in shown.notes:
            _say(Text(f"  {plain(line)}"))
        note = left_out or note
    if note:
        _say(note, "dim")
    for model in document.get("failed", ()):
        _say(f"[yellow]{_text(model['model'])}[/]: {_text(model['reason'])}")
    for line in document.get("base_notes", ()):
        _say(f"[yellow]{_text(line)}[/]")


FEWEST_LAYERS = 3
"""Columns of layers that a narrow terminal keeps."""


def _as_wide_as_the_screen(section: Section) -> tuple[Section, list[object]]:
    """The section with as many layers as there is room for, and those that are left out."""
    shown, left = section.shortened()
    while (
        section.across
        and min(section.most, len(section.by_layer)) > FEWEST_LAYERS
        and not has_room(list(map(str, shown.columns)), _texts(shown.rows))
    ):
        section = replace(section, most=min(section.most, len(section.by_layer)) - 1)
        shown, left = section.shortened()
    return shown, left


LAYERS_SHOWN = 64
"""Pairs of layers that a line shows; --json has all."""


def show_trace(document: Document) -> None:
    """A sentence, then the layers, where they are not the base's in order, and what was done."""
    _say(f"[bold]{_text(document['sentence'])}[/]")
    pairs = document["layers"]
    if any(child != base for child, base in pairs):
        shown = " ".join(f"{child}←{base}" for child, base in pairs[:LAYERS_SHOWN])
        more = " …" if len(pairs) > LAYERS_SHOWN else ""
        _say(Text(f"  layers (of the model ← of the base): {shown}{more}"))
    for change in document["changes"]:
        _say(Text(f"  {plain(change)}"))
    if document["p"] is not None:
        distance = document["distance"]
        beside = "" if distance is None else f", |ΔW|/|W| {distance:.3g} over the sampled entries"
        _say(Text(f"  p {document['p']:.2g}{beside}"))
    _show_merge(document)
    for row in document["alternatives"]:
        _say(Text(f"  also fits: {plain(row['base'])} (|ΔW|/|W| {row['distance']:.3g})"))
    for note in document["notes"]:
        _say(f"[yellow]{_text(note)}[/]")
    if document["bytes_total"]:
        read, total = size(document["bytes_read"]), size(document["bytes_total"])
        _say(f"  read {read} of {total}, beside {count(document['bases'], 'base')}", "dim")


def _show_merge(document: Document) -> None:
    """The parents of a merge with their weights, and how much of it the rows prove."""
    for row in document["parents"]:
        equal = f" (or {', '.join(map(plain, row['equal']))})" if "equal" in row else ""
        varies = ", by layer" if "layers" in row else ""
        _say(Text(f"  parent {plain(row['model'])}{equal}, weight {row['weight']:.4g}{varies}"))
    if document["merge"] and document["merge"] not in document["sentence"]:
        _say(Text(f"  {plain(document['merge'])}"))
    if document["parents"] and document["reconstructed_share"] is not None:
        found, chance = share(document["reconstructed_share"]), share(document["chance_share"])
        line = f"{found} of the sampled entries ({chance} by chance)"
        said = "reproduced from its parents" if document["complete"] else "not reproduced; at best"
        _say(Text(f"  {said}: {line}"))
    if "written" in document:
        _say(Text(f"  written: {plain(document['written'])}"))


def show_bases(document: Document) -> None:
    """A row for each base that models are compared with."""
    heads = ("base", "state", "type", "layers", "width", "vocabulary", "models", "reason")
    if document["bases"]:
        _say_rows(heads, [[row[head] for head in heads] for row in document["bases"]])
    elif not document["failed"]:
        _say("no base is known: `deltadex bases add BASE`, or index a family")


def show_diff(document: Document) -> None:
    """A sentence, then roles, layers and the slots that differ most."""
    first, second = map(_text, document["models"])
    _say(f"[bold]{_text(document['sentence'])}[/]")
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        norms = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        _say_rows((title, first, second), norms[:12], names=(first, second))
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["update_cosine"]),
        )
        for slot in document["most_different"]
    ]
    heads = (f"most different, {unit}", first, second, "stable rank", "update cosine")
    _say_rows(heads, rows, names=(first, second))


def show_extraction(document: Document) -> None:
    """Where the adapter is, what it leaves out, and the layers' ranks."""
    rows = [(row["slot"], str(row["rank"]), share(row["error"])) for row in document["slots"]]
    _say_rows(("layer matrix", "rank", "left out of |ΔW|"), rows)
    saved = document["saved"]
    if saved:
        more = f" and {len(saved) - 4} more" if len(saved) > 4 else ""
        _say(f"saved whole: {_text(', '.join(saved[:4]))}{more}")
    for note in document["notes"]:
        _say(_text(note))
    line = f"{size(document['bytes'])}, {share(document['error'])} of the layers' update left out"
    _say(f"[bold]{_text(document['path'])}[/]: {line}")


def show_audit(document: Document) -> None:
    """A row for each finding, and what was not looked at."""
    findings, models = document["findings"], count(document["models"], "model")
    unread = document.get("not_read", [])
    beside = f"; {count(len(unread), 'model')} not read, or in part" if unread else ""
    if findings:
        _say(f"[bold]{count(len(findings), 'finding')} among {models}[/]{beside}")
        _say_rows(
            ("model", "kind", "detail", "z"),
            [
                (f["model"], f["kind"], f["detail"], "" if f["z"] is None else f"{f['z']:.1f}")
                for f in findings
            ],
        )
    else:
        _say(f"no finding among {models}{beside}")
    for row in unread:
        _say(f"  {_text(row['model'])}: {_text(row['note'])}")
    for note in document["notes"]:
        _say(_text(note), "dim")


def show_trained_models(document: Document) -> None:
    """The models nearest to a data set, the control, and what it means at most."""
    if "without_footprint" in document:
        show_word_matches(document)
        return
    query, models, families = (document[key] for key in ("query", "neighbours", "families"))
    names = _names_of_several(document)
    if names:
        _say(f"models of {len(names)} bases nearest to [bold]{_text(query['texts'])}[/]")
        of_base = ("base", "loss", "examples", "compared", "nearest", "verdict", "z", "control")
        _say_evidence(of_base, _named(families, names))
    else:
        _say(
            f"models of {_text(query['base'])} nearest to [bold]{_text(query['texts'])}[/]: "
            f"gradient of {count(query['n_texts'], 'example')}, loss: {query['loss']}"
        )
    _say_of_bases(names, [(row["base"], row["reading"]) for row in families])
    if models:
        is_small = all(row["calibration"]["source"] == NULL for row in families)
        _say(f"[bold]{_headline(models, document['compared'], is_small=is_small)}[/]")
        _say_of_bases(names, [(row["base"], _known_of_data(row)) for row in families])
        if names:
            least = max(row["calibration"]["verdict_from"] for row in families)
            _say(
                f"asked of {len(names)} bases, a verdict needs a probability of {least:.2f}", "dim"
            )
        if query["control"]:
            _say(
                f"the same texts with permuted labels reach z {query['control']['z']:.1f}: of a "
                "model that is no higher, the texts may be alike and not what the labels teach"
            )
        has_words = any(model.get("touched") is not None for model in models)
        of_words = ("touched", "missing") if has_words else ()
        heads = ("rank", "model", *EVIDENCE_OF_DATA, *of_words, "dataset", "author")
        _say_evidence(_with_base(heads, names), _named(models, names))
        if document["comparison"]:
            _show_comparison(document, names)
    else:
        _say("no model passes the filters")
    _show_left_out(document)
    if models:
        _say(f"It says at most: {document['meaning']}", "dim")


def show_across(document: Document) -> None:
    """Models of other bases, and by how many words they were compared."""
    query, models = document["query"], document["neighbours"]
    families, left_out = document["families"], document["left_out"]
    names = names_of_bases([query["base"], *(row["base"] for row in (*families, *left_out))])
    others = ", ".join(f"{names[row['base']]} ({_compared_of(row)})" for row in families)
    _say(
        f"models of other bases like [bold]{_text(query['model'])}[/] of "
        f"{_text(names[query['base']])}, by words: {_text(others)}"
    )
    if models:
        _say(f"[bold]{document['verdict']}[/]")
        few = [
            names[row["base"]]
            for row in families
            if not row["is_calibrated"] and row["by"] == "footprints"
        ]
        if few:
            _say(f"too few models for a probability: {_text(', '.join(few))}", "dim")
        heads = ("rank", "model", "base", "verdict", "probability", "z", "fdr", "dataset")
        _say_evidence(heads, _named(models, names))
    else:
        _say("no model passes the filters")
    _show_left_out(document)
    _say(f"It says at most: {document['meaning']}", "dim")


def _compared_of(family: Document) -> str:
    """How much of a family was compared, and by how much."""
    models, compared = count(family["models"], "model"), family["compared"]
    of = models if compared == family["models"] else f"{compared} of {models}"
    by = " that updates answer to" if family["by"] == "answers" else ""
    return f"{of}, {count(family['words'], 'word')}{by}"


def _names_of_several(document: Document) -> dict[str, str]:
    """Of the bases of a document, where several were asked."""
    names = names_of_bases([row["base"] for row in document["families"]])
    return names if len(names) > 1 else {}


def _named(rows: Iterable[Document], names: Mapping[str, str]) -> list[Document]:
    return [{**row, "base": names[row["base"]]} if names else row for row in rows]


def _say_of_bases(names: Mapping[str, str], sentences: Sequence[tuple[str, str]]) -> None:
    """A sentence once, with the bases that it is of where others have another."""
    bases: dict[str, list[str]] = {}
    for base, sentence in sentences:
        bases.setdefault(sentence, []).append(names.get(base, base))
    for sentence, those in bases.items():
        _say(_text(sentence if len(bases) == 1 else f"{', '.join(those)}: {sentence}"), "dim")


def _show_left_out(document: Document) -> None:
    for row in document["left_out"]:
        reason = row["reason"].removeprefix(f"{row['base']}: ")
        _say(f"not asked: [bold]{_text(row['base'])}[/]  {_text(reason)}")


def _known_of_data(family: Document) -> str:
    """What the probabilities of a family are known from, and by what else it is normalised."""
    calibration, n_others = family["calibration"], family.get("references")
    is_known = calibration["source"] == "families like it"
    known = FROM_DATA if is_known else _calibrated(calibration)
    return known + f"; models normalised by {n_others} gradients of other data" * bool(n_others)


def _show_comparison(document: Document, names: Mapping[str, str]) -> None:
    """The data against the control, model by model."""
    comparison = document["comparison"]
    files = f"{document['query']['texts']} against the control {comparison['control']}"
    tested = [(row["base"], _tested(row["comparison"])) for row in document["families"]]
    if names:
        _say(_text(files), "bold")
        _say_of_bases(names, tested)
    else:
        _say(_text(f"{files}: {tested[0][1]}"))
    for sentence in comparison["left_out"]:
        _say(_text(sentence), "dim")
    heads = _with_base(("model", "verdict", "effect", "95 %", "p"), names)
    _say_evidence(heads, _named(comparison["models"], names))


def _tested(comparison: Document) -> str:
    others = comparison["others"]
    null = (
        f"and {others} other models"
        if others
        else "alone: too few other models to see whether the two files differ for every model"
    )
    return (
        f"{count(comparison['examples'], 'example')} of each; tested by {comparison['groups']} "
        f"groups of each {null}"
    )


def _with_base(heads: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """The columns of a table of models, with their bases where these are several."""
    place = 1 + max(heads.index(head) for head in ("model", "nearest") if head in heads)
    return [*heads[:place], *(["base"] if names else []), *heads[place:]]


def show_nearest_data(document: Document) -> None:
    """The kept data sets nearest to a model."""
    _say(f"kept data nearest to [bold]{_text(document['query']['model'])}[/]")
    _say(_known_of_data(document), "dim")
    heads = ("rank", "data", *EVIDENCE_OF_DATA, "loss", "examples")
    _say_evidence(heads, document["data"])
    _say(f"It says at most: {document['meaning']}", "dim")


def show_data_sets(document: Document) -> None:
    """The kept data sets, a line each."""
    if document["data"]:
        _say_rows(("name", "base", "loss", "examples", "made_at"), document["data"])
    else:
        _say("no data set is kept: `deltadex find-trained-on FILE --keep NAME` keeps one")


def show_data_set(document: Document) -> None:
    """Everything that is kept of a data set."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {entry}" for name, entry in value.items() if entry != {})
        if value not in (None, ""):
            _say(f"[dim]{key:>10}[/]  {_text(value)}")


def show_clusters(document: Document) -> None:
    """The clusters, how they agree with the labels, and suggestions for unlabelled models."""
    _say(
        f"{_text(document['base'])}: [bold]{len(document['clusters'])}[/] clusters of "
        f"{count(document['models'], 'model')}, {len(document['noise'])} in none · "
        f"recipe {document['recipe']}"
    )
    rows = [
        (
            cluster["name"],
            cluster["size"],
            ", ".join(f"{d['dataset']} ({d['models']})" for d in cluster["datasets"][:3]),
            ", ".join(cluster["words"]),
            ", ".join(cluster["models"][:MEMBERS_SHOWN]),
        )
        for cluster in document["clusters"]
    ]
    if rows:
        _say_rows(("cluster", "models", "datasets", "words", "members"), rows)
    apart = document["silhouette"]
    for name, value, note in (
        ("ARI", document["ari"], "clusters against datasets, 0 for chance"),
        ("NMI", document["nmi"], "the same, not corrected for chance"),
        ("silhouette", apart["labels"], "of the datasets, −1…1"),
        ("", apart["clusters"], "of the clusters"),
    ):
        _say(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
    for note in document["notes"]:
        _say(f"  {_text(note)}", "dim")
    if "suggestions" in document:
        _show_suggestions(document)


def _show_suggestions(document: Document) -> None:
    suggestions, hints = document["suggestions"], document["hints"]
    calibration = document["calibration"]
    if not len(suggestions) + document["abstained"]:
        _say("\nEvery model has a dataset: nothing to suggest.")
        return
    _say(
        f"\nmodels with a suggested dataset: [bold]{len(suggestions)}[/]; without: "
        f"{document['abstained']}"
    )
    _show_list(suggestions, "dataset")
    if hints:
        _say(
            f"[bold]{len(hints)}[/] hints: each with a probability below "
            f"{calibration['target']:.2f}"
        )
        _show_list(hints, "dataset (hint)")
    _say(f"  {_known_from(calibration)}", "dim")
    if n_kept := calibration["kept_data"]:
        _say(
            f"  {n_kept} kept data {'set' if n_kept == 1 else 'sets'} may name models as well: "
            "fdr is twice the rate of the better list",
            "dim",
        )


def _show_list(suggestions: list[Document], named: str) -> None:
    """The first of some suggestions, and how many there are beside."""
    if not suggestions:
        return
    columns = ["model", named, "confidence", "fdr", "verdict"]
    if any(s["source"] == "kept data" for s in suggestions):
        columns.append("named by")
    if any(s["words"] for s in suggestions):
        columns.append("words")
    numbers = ({key: share(s[key]) for key in ("confidence", "fdr")} for s in suggestions)
    rows = [
        {
            **s,
            **shown,
            named: s["dataset"],
            "named by": s["source"],
            "words": ", ".join(s["words"]),
        }
        for s, shown in zip(suggestions[:SUGGESTIONS_SHOWN], numbers, strict=False)
    ]
    _say_rows(columns, rows)
    if len(suggestions) > SUGGESTIONS_SHOWN:
        _say(f"  and {len(suggestions) - SUGGESTIONS_SHOWN} more: --json has them all")


def _known_from(calibration: Document) -> str:
    """What the suggestions are known from, or what is missing."""
    if not calibration["datasets"]:
        return "no labelled model to name others after"
    known = _calibrated(calibration["evidence"])
    if calibration["precision"] is not None:
        return (
            f"{known}; held out, {calibration['answers']} answers of {calibration['models']} "
            f"labelled models: precision {share(calibration['precision'])} at coverage "
            f"{share(calibration['coverage'])}"
        )
    if calibration["threshold"] is not None:
        return f"{known}; no labelled model with such evidence could be held out"
    return (
        f"{known}: no model reaches a confidence of {calibration['target']:.2f}; more labelled "
        "models help, and so does --unknown 0 where the labels name every dataset"
    )


def show_evaluation(document: Document) -> None:
    """Same-dataset retrieval precision: a family's measures and datasets, or a row a family; of
    several recipes or ways of scoring side by side, with what a fingerprint takes."""
    if several := document.get("ways") or document.get("recipes"):
        _say_rows(*_table(several, with_cost=True))
        return
    setting = "" if document["way"] == "normalised" else f", {document['way']}"
    if document["exclude"]:
        setting += f", without the query's own {document['exclude']}"
    _say(f"recipe [bold]{_text(document['recipe'])}[/]{setting}")
    if "by_base" in document:
        _say_rows(*_table([document]))
        _say(f"  cost       {_cost(document['cost'])}")
    else:
        _show_family(document)


def _show_family(document: Document) -> None:
    _say(
        f"{_queries(document)} queries among {count(document['models'], 'model')}, "
        f"{count(document['datasets'], 'dataset')}; left out: {_left_out(document, document)}"
    )
    if document["note"]:
        _say(f"  [yellow]{document['note']}[/]")
    interval = document["ci95"]
    tested = f"of micro by chance; {document['permutations']} permutations of the labels"
    if document["p_value"] is None:
        tested = "not tested: the datasets are too large"
    for name, value, note in (
        ("micro", document["micro"], f"95 % interval {_interval(document)}" if interval else ""),
        ("p", document["p_value"], tested),
        ("macro", document["macro"], "mean of the datasets"),
        ("chance", document["chance"], ""),
        ("nn1", document["nn1"], "nearest neighbour of the same dataset"),
        ("silhouette", document["silhouette"], "of the datasets as clusters, −1…1"),
        ("mAP", document["map"], ""),
    ):
        _say(f"  {name:10} [bold]{share(value)}[/]  [dim]{note}[/]")
        if name == "micro" and not interval:
            _say(f"             [yellow]{document['ci95_reason']}[/]")
    _say(f"  cost       {_cost(document['cost'])}")
    confusion = document["taken_for"]
    rows = [
        (
            name,
            group["n"],
            share(group["purity"]),
            share(group["chance"]),
            group["note"] or _taken_for(confusion.get(name, []), name),
        )
        for name, group in document["by_dataset"].items()
    ]
    _say_rows(("dataset", "queries", "purity", "chance", "else taken for"), rows)
    _show_suspects(document["suspects"] or ())
    compared = document["labels_compared"]
    if document["suspects"] is not None and compared < document["labelled"]:
        _say(f"{compared} of {document['labelled']} labels were compared with the distances", "dim")


def _table(
    documents: Sequence[Document], *, with_cost: bool = False
) -> tuple[list[str], Sequence[Document]]:
    """Heads and rows, a row a family of each document; what is the same everywhere is left out."""
    rows = [
        {
            "recipe": document["recipe"],
            "scores": document["way"],
            "family": base,
            "queries": _queries(scores),
            "95 % interval": _interval(scores),
            "p": share(scores["p_value"]),
            **{name: share(scores[name]) for name in ("micro", "macro", "nn1", "silhouette")},
            "chance": share(scores["chance"]) + (f" ({scores['note']})" if scores["note"] else ""),
            "left out": _left_out(scores, document),
            "cost per model": _cost(document["cost"]),
        }
        for document in documents
        for base, scores in _families(document)
    ]
    heads = ["queries", "micro", "95 % interval", "p", "macro", "nn1", "silhouette", "chance"]
    heads += ["left out", "cost per model"] if with_cost else ["left out"]
    if any("by_base" in document for document in documents):
        heads.insert(0, "family")
    ways, recipes = {row["scores"] for row in rows}, {row["recipe"] for row in rows}
    if len(documents) > 1 and len(ways) > 1:
        heads.insert(0, "scores")
    if len(documents) > 1 and (len(ways) == 1 or len(recipes) > 1):
        heads.insert(0, "recipe")
    return heads, rows


def _families(document: Document) -> Iterator[tuple[str, Document]]:
    if "by_base" in document:
        yield from document["by_base"].items()
    else:
        yield document["base"], document


def _queries(scores: Document) -> str:
    """How many were used, of how many that could be."""
    if scores["sampled_queries"] is None:
        return str(scores["queries"])
    possible = scores["labelled"] - scores["singletons"] - scores["dropped"]
    return f"{scores['queries']} sampled of {possible}"


def _left_out(scores: Document, document: Document) -> str:
    """Which models are no queries, or no candidates, and why."""
    unlabelled = "unlabelled (still candidates)" if document["with_unlabelled"] else "unlabelled"
    parts = {
        "without a sibling": scores["singletons"],
        f"whose siblings --exclude {document['exclude']} removes": scores["dropped"],
        unlabelled: scores["unlabelled"],
    }
    return ", ".join(f"{n} {what}" for what, n in parts.items() if n) or "none"


def _interval(scores: Document) -> str:
    """The interval, or why there is none."""
    if scores["ci95"]:
        return "{:.3f} to {:.3f}".format(*scores["ci95"])
    return str(scores["ci95_reason"]).partition(":")[0]


def _cost(cost: Mapping[str, float | None]) -> str:
    seconds, n_bytes = cost.get("seconds_per_model"), cost.get("bytes_per_model")
    if seconds is None:
        return "unknown"
    return f"{seconds:.2f} s" + (f", {size(int(n_bytes))}" if n_bytes is not None else "")


def _taken_for(cells: Sequence[Document], own: str) -> str:
    others = [cell for cell in cells if cell["dataset"] != own][:3]
    return ", ".join(f"{cell['dataset'] or 'unlabelled'} ({cell['n']})" for cell in others)


def show_plan(document: Document) -> None:
    """The whole plan."""
    models, read = document["models"], document["bytes"]
    words = {"in_catalog": "in the catalog already", "refused": "refused", "excluded": "excluded"}
    parts = [f"{models[key]} {word}" for key, word in words.items() if models[key]]
    rest = f" ({', '.join(parts)})" if parts else ""
    _say(
        f"{_text(document['base'])}: [bold]{models['to_read']}[/] of "
        f"{count(models['listed'], 'model')} would be read{rest} · recipe {document['recipe']}"
    )
    if document["groups"]:
        rows = [
            (
                row["kind"],
                row["format"],
                row["models"],
                _about(row["bytes_files"], row["estimated"]),
                _about(row["bytes_to_read"], row["estimated"] or document["share"] < 1),
            )
            for row in document["groups"]
        ]
        _say_rows(("kind", "format", "models", "files", "to read"), rows)
    is_estimate = read["sizes_from"].keys() - {"files", "requested"}
    line = f"bytes: {_about(read['to_read'], is_estimate)} to read"
    if document["share"] < 1:
        line += f" (budget {document['budget']}), {size(read['to_read_whole'])} without a budget"
    if read["base"]:
        line += f"; the base {size(read['base'])}"
    if read["base_again"]:
        line += f", and {size(read['base_again'])} of it again"
    _say(line)
    _say(f"sizes from: {_listed(read['sizes_from']) or 'nothing'}", "dim")
    _show_requests(document["requests"])
    hours, disk = document["hours"], document["disk"]
    _say(
        f"time: {duration(3600 * hours['total'])} to {duration(3600 * hours['at_most'])} with "
        f"{hours['workers']} "
        f"worker{'s' * (hours['workers'] != 1)} at "
        f"{hours['bandwidth_bits_per_s'] / 1e6:,.0f} Mbit/s each; {hours['binds']} decides"
    )
    _say(
        f"disk: {size(disk['total'])}, {size(disk['per_model'] + disk['derived_per_model'])} a "
        f"model of {count(disk['slots'], 'slot')}"
    )
    if document["refused"]:
        refusals = [row | {"such as": ", ".join(row["examples"])} for row in document["refused"]]
        _say_rows(("code", "models", "meaning", "such as"), refusals)
    for note in document["notes"]:
        _say(f"note: {_text(note)}", "dim")


def _show_requests(requests: Document) -> None:
    """Requests of the run and of the plan, where there are any."""
    if sum(requests["run"].values()):
        limits = ", ".join(
            f"{limit['requests']} {kind}" for kind, limit in requests["limits"].items()
        )
        _say(
            f"requests: {_listed(requests['run'])}; limits in 5 min: {limits} "
            f"({requests['limits_of']}); they make it wait {duration(60 * requests['minutes'])}"
        )
    if requests["plan"]:
        _say(f"this plan took: {_listed(requests['plan'])} requests", "dim")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


def _about(n_bytes: int, estimated: object) -> str:
    return f"about {size(n_bytes)}" if estimated else size(n_bytes)


WORDS_SHOWN = 60
"""Words on the screen; --json has all that were asked for."""


def show_words(document: Document) -> None:
    """The sentence, then the words in lines."""
    _say(f"[bold]{_text(document['model'])}[/]: {_text(document['sentence'])}")
    if document["note"]:
        _say(f"note: {_text(document['note'])}", "dim")
    if document["touched"]:
        of = f"{document['touched']:,} of {document['vocabulary']:,} tokens were touched"
        _say(f"{of} ({document['touched'] / document['vocabulary']:.1%})", "dim")
    _print_words(document["seen"])
    if document["answers_to"]:
        _say("its update answers most to:")
        _print_words(document["answers_to"])
    if document.get("only_other"):
        _say(f"words that only {_text(document['against'])} saw:")
        _print_words(document["only_other"])


def _print_words(rows: list[Document]) -> None:
    if rows:
        _say(_listed_words([row["word"] for row in rows]))


def _listed_words(words: Sequence[str]) -> str:
    more = len(words) - WORDS_SHOWN
    tail = f" … and {more} more" if more > 0 else ""
    return _text(", ".join(words[:WORDS_SHOWN]) + tail)


NO_MATCH = "matches nothing"
NEAR_MISSES = 2
"""Rows without a match that are shown."""


def show_text_search(document: Document) -> None:
    """The models that match a text, and by which words."""
    asked = _listed_words(document["asked"])
    about = f"models by the words [bold]{asked}[/]: " if asked else ""
    _say(f"{about}{_text(document['verdict'])}")
    if document["unknown"] and document["families"]:
        _say(f"not asked, common or not known: {_listed_words(document['unknown'])}", "dim")
    if document["neighbours"]:
        _print_text_matches(document)
    for left in document["left_out"]:
        _say(_text(f"{left['base']}: {left['reason']}"), "dim")


def _print_text_matches(document: Document) -> None:
    _say(f"of {count(document['compared'], 'model')}, {_text(document['meaning'])}", "dim")
    heads = ("rank", "model", "verdict", "by chance", "words", "dataset")
    found = document["neighbours"]
    n_matching = sum(row["verdict"] != NO_MATCH for row in found)
    shown = found[: n_matching + NEAR_MISSES]
    rows = [
        (
            row["rank"],
            row["model"],
            row["verdict"],
            f"{row['by_chance']:.1%}",
            ", ".join(row["words"]),
            row["dataset"],
        )
        for row in shown
    ]
    _say_rows(heads, rows)
    if len(found) > len(shown):
        _say(f"{len(found) - len(shown)} more match nothing; --json lists them", "dim")


def show_word_matches(document: Document) -> None:
    """The models that a file's words fit, and what a row proves."""
    query, rows = document["query"], document["neighbours"]
    _say(f"models by the words of [bold]{_text(query['texts'])}[/]: nothing was run")
    _say(_text(query["reading"]), "dim")
    n_trained = sum(row["probability"] is not None for row in rows)
    compared = count(document["compared"], "model")
    if not rows:
        _say(f"[bold]no model of {compared} can be compared[/]")
    elif n_trained:
        verb = "was" if n_trained == 1 else "were"
        least = max(row["accident"] for row in rows if row["probability"] is not None)
        _say(
            f"[bold]{n_trained} of {compared} {verb} trained on this file, or on one that contains "
            f"it[/]; by accident in less than {least:.0e} of other files"
        )
    else:
        _say(f"[bold]of none of {compared} can it be said that this file trained it[/]")
    if document["without_footprint"]:
        _say(
            f"not compared: {count(document['without_footprint'], 'model')} without a footprint "
            "(adapters, frozen embeddings); leave out --quick to ask them by gradients"
        )
    heads = ("rank", "model", "touched", "missing", "by chance", "dataset", "author")
    _say_evidence(heads, rows)
    for left in document["left_out"]:
        _say(_text(left["reason"]), "dim")
    _say(f"It says at most: {_text(document['meaning'])}", "dim")
