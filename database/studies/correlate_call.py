"""Whether a measure of stored studies goes with a column of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import RequestError
from ..opened import Opened, Place
from ..tables import Table

if TYPE_CHECKING:
    from ...store.tables.documents import StudyResult
    from ...study.correlation import Measured, Number

SLOTS = "slots"
"""The study that measures of whole updates are said to be of; the index holds them."""


class CorrelateCall(Opened):
    """`correlate`."""

    def correlate(
        self,
        measure: str,
        file: Place,
        *,
        columns: Sequence[str] = (),
        over: Literal["models", "groups"] = "models",
        model: str | None = None,
        layer: int | None = None,
        last: bool = False,
        group: str | None = None,
        base: str | None = None,
        seed: int = 0,
    ) -> Table:
        """Spearman's ρ of a measure of stored studies with columns of a file; nothing is run.

        Args:
            measure: A number of a study's document, such as `geometry.anisotropy.centred` or
                `logit-lens.bits_per_character`; or `slots.relative_norm`, `slots.fro_norm`,
                `slots.stable_rank` of whole updates.
            file: A CSV file with a column `model` (or `group`, for languages) and numbers.
            columns: Columns of numbers; all by default. p-values are adjusted for their number.
            over: Whether a row of the file is a model, or a group of texts of one model.
            model: The model whose groups are compared.
            layer: The layer that is measured; the mean of all by default.
            last: Whether it is each model's last one.
            group: The group of texts that is measured, over models; the mean of all by default.
            seed: Of the permutations.

        Returns:
            A row for each column; the document has the `values` that went into it.

        Raises:
            RequestError: no such measure, column, group or model; lists what there is.

        >>> _ = Path("scores.csv").write_text("model,accuracy\\nimdb-0,0.9\\nimdb-1,0.8\\n")
        >>> db.correlate("slots.relative_norm", "scores.csv")[0]["verdict"]
        'too few to tell (n = 2, 5 are needed)'
        """
        from ...study.correlation import correlate_columns, read_columns

        if layer is not None and last:
            raise RequestError("give --layer, or --last")
        given = read_columns(Path(file), columns, over)
        base = self._catalog.find_base(base)
        if over == "groups":
            name, measured = self._by_group(measure, model, base)
            values = {
                text_group: value
                for text_group in measured.groups
                if (value := measured.value(layer=layer, last=last, group=text_group)) is not None
            }
            used, left_out, layers = measured.model, 0, measured.layers
        else:
            if model is not None:
                raise RequestError("--model is for --over groups")
            used = None
            whole = layer is None and not last
            name, every, left_out = (
                self._of_slots(measure, base, whole=whole)
                if measure.split(".")[0] == SLOTS
                else self._by_model(measure, base, given.names)
            )
            if group is not None and not any(group in one.groups for one in every):
                groups = dict.fromkeys(g for one in every for g in one.groups)
                raise RequestError(f"no group {group!r}; groups: {', '.join(groups) or 'none'}")
            values = {
                one.model: value
                for one in every
                if (value := one.value(layer=layer, last=last, group=group)) is not None
            }
            layers = tuple(sorted({number for one in every for number in one.layers}))
        if layer is not None and layers and layer not in layers:
            raise RequestError(f"no layer {layer}; layers: {layers[0]} to {layers[-1]}")
        if not set(values) & set(given.names):
            raise RequestError(
                f"{file}: names no {over[:-1]} with {name}; there are: "
                f"{', '.join(sorted(values)[:8]) or 'none'}"
            )
        found = correlate_columns(values, given.columns, seed=seed)
        return Table(
            {
                "measure": name,
                "over": over,
                "model": used,
                "group": group,
                "layer": _which_layer(layers, layer, last=last),
                "correlations": [one.to_json() for one in found],
                "values": [
                    {"name": n, "value": values[n]}
                    | {column: numbers.get(n) for column, numbers in given.columns.items()}
                    for n in given.names
                    if n in values
                ],
                "unmatched": [n for n in given.names if n not in values],
                "other_settings": left_out,
                "broken_rows": list(given.broken),
                "seed": seed,
            }
        )

    def _by_model(
        self, measure: str, base: str | None, names: Sequence[str]
    ) -> tuple[str, list[Measured], int]:
        """(name of the measure, its numbers by model, models with other settings only).

        Studies with other settings are other measurements: those of most named models count.
        """
        from ...study.correlation import Measured

        name, numbers = self._results(measure, base)
        having = [result for result, own in numbers if own]
        counts = Counter(r.settings for r in having if r.model in names)
        newest = {r.settings: r.made_at for r in sorted(having, key=lambda r: r.made_at)}
        settings = max(newest, key=lambda s: (counts[s], newest[s]))
        chosen = {(r.base, r.model): own for r, own in numbers if own and r.settings == settings}
        self._require_one_family(base, [model for _, model in chosen])
        others = {(r.base, r.model) for r in having} - chosen.keys()
        every = [Measured(model=model, numbers=own) for (_, model), own in chosen.items()]
        return name, every, len(others)

    def _by_group(self, measure: str, model: str | None, base: str | None) -> tuple[str, Measured]:
        """The numbers of a model's newest study that has the measure."""
        from ...study.correlation import Measured

        if model is not None:
            row = self._catalog.model(model, base)
            model, base = row.id, row.base
        name, results = self._results(measure, base, model)
        models = dict.fromkeys((r.base, r.model) for r, _ in results)
        if len(models) > 1:
            shown = ", ".join(name for _, name in list(models)[:8])
            raise RequestError(f"which model? Give --model, one of: {shown}")
        for result, numbers in reversed(results):  # the newest
            grouped = tuple(n for n in numbers if n.group is not None)
            if grouped:
                return name, Measured(model=result.model, numbers=grouped)
        raise RequestError(f"{name} is not measured by group of texts")

    def _results(
        self, measure: str, base: str | None, model: str | None = None
    ) -> tuple[str, list[tuple[StudyResult, tuple[Number, ...]]]]:
        """(the measure's name, its numbers in each stored result of its study)."""
        from ...study.correlation import find_measure, numbers_of

        study = measure.split(".")[0]
        results = self._catalog.study_results(study, base, model)
        if not results:
            studies = [name for name in self._catalog.study_names() if name != study]
            raise RequestError(
                f"{measure}: no study {study!r} is stored"
                f"{f' of {model}' if model else ''}; stored studies: "
                f"{', '.join([SLOTS, *studies])}"
            )
        numbers = [(result, numbers_of(study, result.document)) for result in results]
        name = find_measure(measure, {n.name for _, own in numbers for n in own})
        return name, [(r, tuple(n for n in own if n.name == name)) for r, own in numbers]

    def _of_slots(
        self, measure: str, base: str | None, *, whole: bool
    ) -> tuple[str, list[Measured], int]:
        """The same of whole updates, or by layer: sums over slots, which the index holds."""
        from ...study.correlation import Measured, Number, family_values, find_measure

        by_model: dict[str, list[Number]] = {}
        rows = self._catalog.models(base=base, status="indexed")
        self._require_one_family(base, [row.id for row in rows])
        for row in rows:
            slots = self._catalog.slots(row.key)
            layers = sorted({slot.slot.layer for slot in slots})
            depths: list[int | None] = [None] if whole else [*layers]
            by_model[row.id] = [
                Number(name=name, value=value, layer=depth)
                for depth in depths
                for name, value in family_values(slots, layer=depth).items()
            ]
        name = find_measure(measure, {n.name for own in by_model.values() for n in own})
        return (
            name,
            [
                Measured(model=model, numbers=tuple(n for n in own if n.name == name))
                for model, own in by_model.items()
            ],
            0,
        )

    def _require_one_family(self, base: str | None, models: Sequence[str]) -> None:
        twice = [model for model, count in Counter(models).items() if count > 1]
        if base is None and twice:
            raise RequestError(
                f"{twice[0]}: several families have it; add --base, one of: {', '.join(self.bases)}"
            )


def _which_layer(layers: Sequence[int], layer: int | None, *, last: bool) -> str | int | None:
    """What the document says of the layer; None for a measure without layers."""
    if not layers:
        return None
    if last:
        return "last"
    return f"mean of {len(layers)}" if layer is None else layer
