"""Whether a measure of stored studies goes with a column of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Literal

from ...errors import RequestError
from ...options import Place, argument, option, record
from ...results import Section, count, share
from ..study import OpenCatalog, Study, StudyTable, seed_option, study

MOST_NAMES = 8


@record
class Correlate(Study):
    """Correlate MEASURE of stored studies with columns of FILE, by Spearman's rank correlation.

    FILE is a CSV file with a column `model` (or `group`) and columns of numbers, such as accuracy.
    MEASURE is a number that a study stored, such as `geometry.anisotropy.centred`, or of whole
    updates, such as `slots.relative_norm`; where there is no such measure, the answer lists those
    that there are. Nothing is run.

    Returns:
        A row for each column; the document has the `values` that went into it.

    Raises:
        RequestError: no such measure, column, group or model; lists what there is.

    >>> _ = Path("scores.csv").write_text("model,accuracy\\nimdb-0,0.9\\nimdb-1,0.8\\n")
    >>> db.studies.correlate("slots.relative_norm", "scores.csv")[0]["verdict"]
    'too few to tell (n = 2, 5 are needed)'
    """

    examples = (
        "correlate geometry.anisotropy.centred scores.csv --column accuracy --last",
        "correlate geometry.fertility.tokens_per_word sizes.csv --over groups",
    )
    has_picture = False

    measure: str = argument(help="A number of a study's document.")
    file: Place = argument(file="existing file", help="A CSV file.")
    _: KW_ONLY
    columns: Sequence[str] = option(
        "--column",
        default=(),
        shown_default="every column of numbers",
        help="A column of FILE; p-values are adjusted for their number.",
    )
    over: Literal["models", "groups"] = option(
        default="models", help="Whether a row of FILE is a model or a group of texts."
    )
    model: str | None = option(default=None, help="With `--over groups`: the model.")
    layer: int | None = option(
        default=None, least=0, shown_default="mean of all", help="Measure this layer."
    )
    last: bool = option(default=False, help="Measure the last layer.")
    group: str | None = option(
        default=None, shown_default="mean of all", help="With `--over models`: the group of texts."
    )
    base: str | None = option(default=None, help="Only this family, where the catalog has several.")
    seed: int = seed_option("the permutations")

    def answer(self, db: OpenCatalog) -> CorrelationTable:
        from .measures import StoredMeasures, correlate_columns, read_columns

        if self.layer is not None and self.last:
            raise RequestError("give --layer, or --last")
        given = read_columns(Path(self.file), self.columns, self.over)
        stored = StoredMeasures(db.catalog, db.catalog.find_base(self.base))
        if self.over == "groups":
            name, measured = stored.by_group(self.measure, self.model)
            of = {
                group: measured.value(layer=self.layer, last=self.last, group=group)
                for group in measured.groups
            }
            used, left_out, layers = measured.model, 0, measured.layers
        else:
            if self.model is not None:
                raise RequestError("--model is for --over groups")
            used = None
            whole = self.layer is None and not self.last
            name, every, left_out = (
                stored.of_slots(self.measure, whole=whole)
                if self.measure.split(".")[0] == "slots"
                else stored.by_model(self.measure, given.names)
            )
            if self.group is not None and not any(self.group in one.groups for one in every):
                groups = dict.fromkeys(g for one in every for g in one.groups)
                raise RequestError(
                    f"no group {self.group!r}; groups: {', '.join(groups) or 'none'}"
                )
            of = {
                one.model: one.value(layer=self.layer, last=self.last, group=self.group)
                for one in every
            }
            layers = tuple(sorted({number for one in every for number in one.layers}))
        values = {name: value for name, value in of.items() if value is not None}
        if self.layer is not None and layers and self.layer not in layers:
            raise RequestError(f"no layer {self.layer}; layers: {layers[0]} to {layers[-1]}")
        if not set(values) & set(given.names):
            raise RequestError(
                f"{self.file}: names no {self.over[:-1]} with {name}; there are: "
                f"{', '.join(sorted(values)[:8]) or 'none'}"
            )
        correlations = correlate_columns(values, given.columns, seed=self.seed)
        which = "last" if self.last else self.layer
        if which is None:
            which = f"mean of {len(layers)}"
        return CorrelationTable(
            {
                "measure": name,
                "over": self.over,
                "model": used,
                "group": self.group,
                "layer": which if layers else None,
                "correlations": correlations,
                "values": [
                    {"name": n, "value": values[n]}
                    | {column: numbers.get(n) for column, numbers in given.columns.items()}
                    for n in given.names
                    if n in values
                ],
                "unmatched": [n for n in given.names if n not in values],
                "other_settings": left_out,
                "broken_rows": list(given.broken),
                "seed": self.seed,
            }
        )


class CorrelationTable(StudyTable):
    """Spearman's ρ of a measure with each column of a file, a row for each column.

    A row has `column`, `n`, `rho` (−1…1) with the interval `low` to `high`, `p_value`, `p_holm`
    (for as many columns) and `verdict`; the document also has every `pair`.
    """

    columns = ("column", "n", "rho", "low", "high", "p_value", "p_holm", "verdict")
    _key = "correlations"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        layer = document["layer"]
        parts = [
            f"Spearman's ρ of {document['measure']} over {document['over']}",
            f"of {document['model']}" if document["model"] else "",
            f"· group {document['group']}" if document["group"] else "",
            f"· {'' if isinstance(layer, str) else 'layer '}{layer}" if layer is not None else "",
            "layers" if str(layer).startswith("mean") else "layer" if layer == "last" else "",
        ]
        notes = []
        if names := document["unmatched"]:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            notes.append(f"not measured: {', '.join(names[:MOST_NAMES])}{more}")
        if others := document["other_settings"]:
            notes.append(f"left out: {count(others, 'model')} measured with other settings only")
        yield Section(
            title=" ".join(filter(None, parts)),
            columns=("column", "n", "ρ", "95 %", "p", "p, Holm", ""),
            rows=[
                (
                    one["column"],
                    one["n"],
                    share(one["rho"]),
                    "–" if one["low"] is None else f"{one['low']:.2f} to {one['high']:.2f}",
                    _p(one["p_value"]),
                    _p(one["p_holm"]),
                    one["verdict"],
                )
                for one in self
            ],
            notes=(*notes, *document["broken_rows"][:MOST_NAMES]),
        )


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


correlate = study(Correlate)
