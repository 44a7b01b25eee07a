"""Measures of stored studies by name, columns of a file, and the rank correlation of the two.

A measure's name is the way to it through the document, `geometry.groups.layers.anisotropy.centred`,
where entries of a list are told apart by what names them. Any parts between the first and the last
may be left out: `geometry.anisotropy.centred`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import permutation_test, rankdata

from ...arrays import Float64
from ...data.rows import DataTable, Row, TextFile, errors_as, open_named_csv
from ...errors import RequestError, nearest_names, offered
from ...records import SlotStats
from ..texts import GROUP_COLUMNS

if TYPE_CHECKING:
    from ...store import Catalog
    from ...store.tables.documents import StudyResult

CONTAINERS = ("groups", "layers", "stacks", "curves", "points", "slots")
"""Parts that are left out where names are listed."""
IDENTIFIERS = ("stack", "role", "slot", "name", "estimator", "theta")
"""Keys whose values tell the entries of a list apart."""
COLUMN_AXES = ("terms", "local_terms", "thetas")
"""Keys beside a list whose entries name that list's."""
FROM_BLOCK_1 = ("local_shift",)
"""Lists by block: the first entry is of layer 1."""
SLOTS = "slots"
"""The study that measures of whole updates are said to be of; the index holds them."""
MOST_SHOWN = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of a document, or a place on the way to some, named by its way through it, with
    the study first; the group is None where it is of all texts, the layer where it is of the whole
    network."""

    name: str
    value: float = math.nan
    group: str | None = None
    layer: int | None = None

    def below(self, *parts: object) -> Number:
        return replace(self, name=".".join((self.name, *map(str, parts))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    model: str
    numbers: tuple[Number, ...]

    def value(
        self, *, layer: int | None = None, last: bool = False, group: str | None = None
    ) -> float | None:
        """The mean over the layers and groups that are asked for; None where there is none."""
        chosen = [n for n in self.numbers if group is None or n.group == group]
        layers = [n.layer for n in chosen if n.layer is not None]
        if last and layers:
            layer = max(layers)
        if layer is not None:
            chosen = [n for n in chosen if n.layer == layer]
        return float(np.mean([n.value for n in chosen])) if chosen else None

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.group for n in self.numbers if n.group is not None))

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(sorted({n.layer for n in self.numbers if n.layer is not None}))


def numbers_of(study: str, document: Mapping[str, Any]) -> tuple[Number, ...]:
    """Every number of a study's document that a name leads to."""
    depth = document.get("n_layers")
    return tuple(_walk(document, Number(name=study), depth if isinstance(depth, int) else None))


def find_measure(measure: str, names: Iterable[str]) -> str:
    """The name that a measure stands for: its first and last part are those of the name; a
    `RequestError` lists names where none or several are."""
    known = sorted(set(names))
    if measure in known:
        return measure
    matches = [name for name in known if _abbreviates(measure.split("."), name.split("."))]
    # of a group and of its layers: the name as it is listed is the one that is nearer to the top
    listed_as = sorted((n for n in matches if short_name(n) == measure), key=lambda n: n.count("."))
    if len(matches) == 1 or listed_as:
        return [*listed_as, *matches][0]
    if matches:
        shown = ", ".join(_shown(matches))
        raise RequestError(f"{measure!r} stands for several measures: {shown}")
    near = nearest_names(measure, map(short_name, known))
    study = [name for name in known if name.split(".")[0] == measure.split(".")[0]]
    listed = list(dict.fromkeys([*near, *_shown(study or known)]))
    raise RequestError(
        f"no measure {measure!r} is stored; "
        + (f"there are: {', '.join(listed[:MOST_SHOWN])}" if listed else "run a study first")
        + (f" and {len(listed) - MOST_SHOWN} more" if len(listed) > MOST_SHOWN else "")
    )


def short_name(name: str) -> str:
    """The name without the parts that only hold others; a measure that `find_measure` takes."""
    first, *between, last = name.split(".")
    return ".".join([first, *(part for part in between if part not in CONTAINERS), last])


def family_values(slots: Sequence[SlotStats], *, layer: int | None = None) -> dict[str, float]:
    """Measures of a model's whole update, over its slots, or over those of one layer.

    Norms add up by their squares: `slots.relative_norm` is √(Σ|ΔW|² / Σ|W|²).
    """
    chosen = [slot for slot in slots if layer is None or slot.slot.layer == layer]
    if not chosen:
        return {}
    energy = sum(slot.fro_norm**2 for slot in chosen)
    values = {
        "slots.fro_norm": energy**0.5,
        "slots.stable_rank": float(np.mean([slot.stable_rank for slot in chosen])),
        "slots.changed": float(sum(slot.fro_norm > slot.noise_floor for slot in chosen)),
    }
    measured = [slot for slot in chosen if slot.relative_norm]
    if len(measured) == sum(slot.fro_norm > 0 for slot in chosen) and measured:
        weights = sum((slot.fro_norm / float(slot.relative_norm or 1)) ** 2 for slot in measured)
        values["slots.relative_norm"] = (energy / weights) ** 0.5
    return values


@dataclass(frozen=True)
class StoredMeasures:
    """What the catalog holds of a measure, of the models of a family or of all."""

    catalog: Catalog
    base: str | None

    def by_model(self, measure: str, names: Sequence[str]) -> tuple[str, list[MeasuredModel], int]:
        """(name of the measure, its numbers by model, models with other settings only).

        Studies with other settings are other measurements: those of most named models count.
        """
        name, numbers = self._results(measure, self.base)
        having = [result for result, own in numbers if own]
        counts = Counter(r.settings for r in having if r.model in names)
        newest = {r.settings: r.made_at for r in sorted(having, key=lambda r: r.made_at)}
        settings = max(newest, key=lambda s: (counts[s], newest[s]))
        chosen = {(r.base, r.model): own for r, own in numbers if own and r.settings == settings}
        self._require_one_family([model for _, model in chosen])
        others = {(r.base, r.model) for r in having} - chosen.keys()
        every = [MeasuredModel(model=model, numbers=own) for (_, model), own in chosen.items()]
        return name, every, len(others)

    def by_group(self, measure: str, model: str | None) -> tuple[str, MeasuredModel]:
        """The numbers of a model's newest study that has the measure."""
        base = self.base
        if model is not None:
            row = self.catalog.model(model, base)
            model, base = row.id, row.base
        name, results = self._results(measure, base, model)
        models = dict.fromkeys((r.base, r.model) for r, _ in results)
        if len(models) > 1:
            shown = ", ".join(name for _, name in list(models)[:8])
            raise RequestError(f"which model? Give --model, one of: {shown}")
        for result, numbers in reversed(results):  # the newest
            grouped = tuple(n for n in numbers if n.group is not None)
            if grouped:
                return name, MeasuredModel(model=result.model, numbers=grouped)
        raise RequestError(f"{name} is not measured by group of texts")

    def _results(
        self, measure: str, base: str | None, model: str | None = None
    ) -> tuple[str, list[tuple[StudyResult, tuple[Number, ...]]]]:
        """(the measure's name, its numbers in each stored result of its study)."""
        study = measure.split(".")[0]
        results = self.catalog.study_results(study, base, model)
        if not results:
            studies = [name for name in self.catalog.study_names() if name != study]
            raise RequestError(
                f"{measure}: no study {study!r} is stored"
                f"{f' of {model}' if model else ''}; stored studies: "
                f"{', '.join([SLOTS, *studies])}"
            )
        numbers = [(result, numbers_of(study, result.document)) for result in results]
        name = find_measure(measure, {n.name for _, own in numbers for n in own})
        return name, [(r, tuple(n for n in own if n.name == name)) for r, own in numbers]

    def of_slots(self, measure: str, *, whole: bool) -> tuple[str, list[MeasuredModel], int]:
        """The same of whole updates, or by layer: sums over slots, which the index holds."""
        by_model: dict[str, list[Number]] = {}
        rows = self.catalog.models(base=self.base, status="indexed")
        self._require_one_family([row.id for row in rows])
        for row in rows:
            slots = self.catalog.slots(row.key)
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
                MeasuredModel(model=model, numbers=tuple(n for n in own if n.name == name))
                for model, own in by_model.items()
            ],
            0,
        )

    def _require_one_family(self, models: Sequence[str]) -> None:
        twice = [model for model, count in Counter(models).items() if count > 1]
        if self.base is None and twice:
            bases = ", ".join(self.catalog.bases())
            raise RequestError(f"{twice[0]}: several families have it; add --base, one of: {bases}")


def _walk(value: Mapping[str, Any], place: Number, depth: int | None) -> Iterator[Number]:
    group, layer = value.get("group"), value.get("layer")
    if isinstance(group, str):
        place = replace(place, group=group)
    if isinstance(layer, int):
        place = replace(place, layer=layer)
    for key, child in value.items():
        here = place.below(key)
        if key in ("group", "layer"):
            continue
        if _is_number(child):
            yield replace(here, value=float(child))
        elif isinstance(child, Mapping):
            yield from _walk(child, here, depth)
        elif isinstance(child, list) and child:
            yield from _walk_list(child, value, here, depth)


def _walk_list(
    entries: list[Any], beside: Mapping[str, Any], here: Number, depth: int | None
) -> Iterator[Number]:
    """A list of records, of numbers by layer or term, or of such lists by layer."""
    if all(isinstance(entry, Mapping) for entry in entries):
        for entry in entries:
            own = [entry[name] for name in IDENTIFIERS if isinstance(entry.get(name), str | float)]
            inner = {k: v for k, v in entry.items() if k not in IDENTIFIERS}
            yield from _walk(inner, here.below(*own), depth)
        return
    columns = next(
        (beside[axis] for axis in COLUMN_AXES if len(entries) == len(beside.get(axis) or ())), ()
    )
    if all(entry is None or _is_number(entry) for entry in entries):
        by_layer = here.layer is None and _is_by_layer(len(entries), beside, depth)
        for index, entry in enumerate(entries):
            if entry is not None and (columns or by_layer):
                at = replace(here, layer=index) if by_layer else here.below(columns[index])
                yield replace(at, value=float(entry))
    elif all(isinstance(entry, list) for entry in entries):
        start = 1 if here.name.split(".")[-1] in FROM_BLOCK_1 else 0
        inner_axes = {axis: beside[axis] for axis in COLUMN_AXES if axis in beside}
        for index, row in enumerate(entries, start=start):
            if row and inner_axes:
                yield from _walk_list(row, inner_axes, replace(here, layer=index), depth)


def _is_by_layer(length: int, beside: Mapping[str, Any], depth: int | None) -> bool:
    if isinstance(beside.get("layers"), list):
        return length == len(beside["layers"])
    return depth is not None and length in (depth, depth + 1)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _abbreviates(parts: Sequence[str], name: Sequence[str]) -> bool:
    if not parts or parts[0] != name[0] or parts[-1] != name[-1]:
        return False
    rest = iter(name)
    return all(part in rest for part in parts)


def _shown(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(short_name(name) for name in names))


Over = Literal["models", "groups"]

NAME_COLUMNS: Mapping[Over, tuple[str, ...]] = {
    "models": ("model", "id"),
    "groups": (*GROUP_COLUMNS, "script"),
}

MISSING = ("", "na", "n/a", "nan", "null", "none", "-")
"""Cells that say that there is no number, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """The names of models or groups in a file, by column the numbers of those that have one, and
    the rows and cells that could not be used."""

    names: tuple[str, ...]
    columns: Mapping[str, Mapping[str, float]]
    broken: tuple[str, ...]


def read_columns(path: Path, wanted: Sequence[str], over: Over) -> ColumnFile:
    """The wanted columns of a file, or every column of numbers where none is named.

    The header names a column `model`, or `group` (also `language`, `lang`), and the numbers'.
    Columns are separated by commas, semicolons, tabs or pipes; the header decides. Without commas
    between columns a number may have a decimal comma. Cells such as NA are empty.

    Raises:
        RequestError: no such file or column, or no number in it.
    """
    keys = NAME_COLUMNS[over]
    with errors_as(RequestError):
        table = open_named_csv(TextFile.read(path), keys)
        key = next(name for name in keys if name in table.columns)
        named = [name.strip().lower() for name in wanted]
        others = [name for name in table.columns if name and name != key]
        missing = [name for name in named if name not in others]
        if missing:
            raise RequestError(
                f"{path}: no column {missing[0]!r}{offered(missing[0], others, 'columns')}"
            )
        table.refuse_repeated(others)
        rows, broken = _rows_by_name(table, key)
    columns: dict[str, dict[str, float]] = {}
    filled = {
        column: {
            n: cell
            for n, row in rows.items()
            if (cell := str(row[column]).strip()).lower() not in MISSING
        }
        for column in named or others
    }
    for column, cells in filled.items():
        numbers = {name: _parsed(cell, table.delimiter) for name, cell in cells.items()}
        unusable = [name for name, value in numbers.items() if value is None]
        if unusable and not named:
            if len(unusable) < len(numbers):  # else a column of words
                first = unusable[0]
                broken.append(
                    f"{path.name}: {column} is left out: {cells[first]!r} of {first} is no number"
                )
            continue
        broken += [f"{path.name}: {column} of {n} is {cells[n]!r}, no number" for n in unusable]
        columns[column] = {name: value for name, value in numbers.items() if value is not None}
    columns = {column: numbers for column, numbers in columns.items() if numbers or named}
    if not any(columns.values()):
        raise RequestError(f"{path}: no number in {', '.join(named or others) or 'any column'}")
    return ColumnFile(names=tuple(rows), columns=columns, broken=tuple(broken))


def _rows_by_name(table: DataTable, key: str) -> tuple[dict[str, Row], list[str]]:
    """The rows by the name in a column, and what is wrong with those that cannot be used."""
    rows: dict[str, Row] = {}
    broken = []
    for number, (_, row) in enumerate(table.rows(table.columns), start=1):
        name = "" if isinstance(row, str) else str(row[key]).strip()
        if isinstance(row, str) and row != "empty":
            wrong = "not as many fields as the header"
        elif isinstance(row, str) or not name:
            wrong = f"no {key}"
        elif name in rows:
            wrong = f"{key} {name!r} is there twice"
        else:
            rows[name] = row
            continue
        broken.append(f"{table.path.name}:{number}: {wrong}")
    return rows, broken


def _parsed(cell: str, delimiter: str) -> float | None:
    try:
        value = float(cell.replace(",", ".") if delimiter != "," else cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


FEWEST = 5
"""With fewer pairs no order is surprising: of 4, one in 12 has |ρ| = 1 by chance."""
PERMUTATIONS = 9_999
"""All of them up to seven pairs, which have 5,040."""
NORMAL_QUANTILE = 1.959963984540054
"""Of a 95 % interval."""
SIGNIFICANT = 0.05


def correlate_columns(
    values: Mapping[str, float], columns: Mapping[str, Mapping[str, float]], *, seed: int = 0
) -> list[dict[str, Any]]:
    """The documents of Spearman's ρ of the values with each column, over the `n` names that have
    both: `rho`, −1…1, with mean ranks for ties, is None where one side is constant or with fewer
    than two pairs; `low` and `high`, a 95 % interval by Fisher's z with the standard error of
    Bonett & Wright 2000, with fewer than five. `p_value` is two-sided, by permutation: all of them
    up to seven pairs, else 9,999 at random; `p_holm` for as many columns (Holm 1979).
    """
    found: list[tuple[str, int, float | None, float | None]] = []
    for name, column in columns.items():
        both = [(value, column[key]) for key, value in values.items() if key in column]
        x, y = np.array(both, dtype=np.float64).reshape(-1, 2).T.copy()
        rho = spearman(x, y)
        tested = rho is not None and len(x) >= FEWEST
        found.append((name, len(x), rho, permutation_p(x, y, seed=seed) if tested else None))
    adjusted = holm([p for *_, p in found])
    return [_correlation(*one, p_holm) for one, p_holm in zip(found, adjusted, strict=True)]


def spearman(x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"]) -> float | None:
    """Pearson's correlation of the ranks, exact for a perfect order; None where one side has no two
    different values."""
    a, b = _centred_ranks(x), _centred_ranks(y)
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else None


def interval(rho: float, n: int) -> tuple[float, float]:
    """Of ρ from n > 3 pairs, at 95 %: tanh(artanh ρ ± 1.96 √((1 + ρ²/2) / (n − 3))).

    Bonett & Wright 2000, Psychometrika 65, eq. 3. A perfect order is taken for half of an exchange
    of two neighbours less, since artanh 1 is infinite.
    """
    most = 1 - 6 / (n * (n * n - 1))
    rho = min(max(rho, -most), most)
    z, error = np.arctanh(rho), np.sqrt((1 + rho**2 / 2) / (n - 3))
    low, high = np.tanh([z - NORMAL_QUANTILE * error, z + NORMAL_QUANTILE * error])
    return float(low), float(high)


def permutation_p(
    x: Float64[np.ndarray, " n"], y: Float64[np.ndarray, " n"], *, seed: int
) -> float:
    """Share of permutations whose |ρ| is at least as large, two-sided."""
    a, b = _centred_ranks(x), _centred_ranks(y)
    found = permutation_test(
        (b,),
        lambda order, axis: np.abs(order @ a),
        permutation_type="pairings",
        vectorized=True,
        n_resamples=PERMUTATIONS,
        alternative="greater",
        random_state=seed,
    )
    return float(found.pvalue)


def holm(p_values: list[float | None]) -> list[float | None]:
    """Adjusted for as many tests as there are numbers (Holm 1979)."""
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, p * (len(tested) - rank)))
        adjusted[place] = largest
    return adjusted


def _correlation(
    column: str, n: int, rho: float | None, p: float | None, p_holm: float | None
) -> dict[str, Any]:
    low, high = (None, None) if rho is None or n < FEWEST else interval(rho, n)
    if n < FEWEST:
        verdict = f"too few to tell (n = {n}, {FEWEST} are needed)"
    elif rho is None or p_holm is None:
        verdict = "one side is constant"
    elif p_holm >= SIGNIFICANT:
        verdict = "no relation shown"
    else:
        verdict = "rises with it" if rho > 0 else "falls with it"
    document = {"column": column, "n": n, "rho": rho, "low": low, "high": high}
    return document | {"p_value": p, "p_holm": p_holm, "verdict": verdict}


def _centred_ranks(values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """Ranks from 1, equal values with their mean rank, minus the mean of all."""
    ranks: Float64[np.ndarray, " n"] = rankdata(values) - (len(values) + 1) / 2
    return ranks
