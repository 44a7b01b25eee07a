"""What differs between two models: `diff`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from ..options import Question, argument, option, record
from ..records import Slot, SlotStats
from ..results import Document, Section, Shown, Table, share
from .face.opened import ONLY_FAMILY, Opened
from .terminal.command_line import asking

if TYPE_CHECKING:
    from ..store import Catalog, SketchMatrix

MOST_CHANGED = 8
ALIKE, RELATED = 0.9, 0.3
"""Update cosines from which two updates are called nearly the same, and related."""

Pair = list[float]
"""A number of model A and of model B."""


class DifferenceTable(Table):
    """Two models: a row for each of the slots that differ most."""

    columns = ("slot", "change", "stable_rank", "cosine")
    _key = "most_different"


@record
class Diff(Question):
    """Compare two indexed models of a family, slot by slot.

    >>> db.diff("imdb-0", "sst2-0").to_json()["unit"]
    'relative'
    """

    first: str = argument(metavar="A", help="Id of a model.")
    second: str = argument(metavar="B", help="Id of another model.")
    base: str | None = option(default=None, help=ONLY_FAMILY)

    def answer(self, db: Opened) -> DifferenceTable:
        return DifferenceTable(db._catalog.look(lambda: _difference(db._catalog, self)))


def _difference(catalog: Catalog, asked: Diff) -> Document:
    """The document of the difference by what the catalog holds of both; no weights are read.

    `cosine`, as `find-similar` has it, is over slots and all kernels, and `update_cosine` of ΔW
    alone over all slots; by slot, `update_cosine` is estimated from sketches, and `change` is
    |ΔW| / |W|, in the `unit` `absolute` |ΔW|, where W was not read; 0 for a model that did not
    change the slot. `by_layer`, `by_role`: |ΔW| over all slots of a layer or role.
    `most_different`: the slots whose changes differ most.
    """
    from ..search import pair_cosine
    from ..store import SketchMatrix

    base = catalog.find_base(asked.base)
    a = catalog.model(asked.first, base)
    b = catalog.model(asked.second, base or a.base)
    for row in (a, b):
        if row.status != "indexed":
            raise RequestError(f"{row.id} is not indexed ({row.code}: {row.reason})")
    stats_a, stats_b = ({s.slot: s for s in catalog.slots(row.key)} for row in (a, b))
    every = (*stats_a.values(), *stats_b.values())
    if not every:
        raise RequestError(f"nothing to compare: the catalog keeps no slots of {a.id} and {b.id}")
    relative = all(stats.relative_norm is not None for stats in every)
    in_order = sorted({*stats_a, *stats_b})

    def change(stats: SlotStats | None) -> float:
        if stats is None:
            return 0.0
        return float(stats.relative_norm or 0.0) if relative else stats.fro_norm

    def pair(slot: Slot, value: Callable[[SlotStats | None], float]) -> Pair:
        return [value(stats_a.get(slot)), value(stats_b.get(slot))]

    common = {*a.recipes} & {*b.recipes}
    recipe = next(
        (r for r in catalog.recipes_of(a.base) if r.name == "sketch" and r.id in common), None
    )
    cosine = pair_cosine(catalog, a.id, b.id, a.base)
    update_cosine: float | None = None
    cosines: dict[Slot, float] = {}
    if recipe is not None:
        sketches = (
            SketchMatrix.of_rows([{s.slot: s.sketch for s in stats if s.sketch}], recipe)
            for stats in (catalog.slots(row.key, recipe.id) for row in (a, b))
        )
        update_cosine, cosines = _cosines(*sketches)

    slots: list[dict[str, Any]] = [
        {
            "slot": str(slot),
            "change": pair(slot, change),
            "stable_rank": pair(slot, lambda stats: stats.stable_rank if stats else 0.0),
            "update_cosine": cosines.get(slot),
        }
        for slot in in_order
    ]

    def norms(name: Callable[[Slot], str]) -> dict[str, Pair]:
        energies: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for slot in in_order:
            for side, stats in enumerate((stats_a, stats_b)):
                if slot in stats:
                    energies[name(slot)][side] += stats[slot].fro_norm ** 2
        return {key: [a**0.5, b**0.5] for key, (a, b) in energies.items()}

    by_layer = norms(lambda slot: f"{slot.stack} {slot.layer}")
    by_role = norms(lambda slot: slot.role)
    only = [
        f"only {row.id} touches {_listed(slot for slot in in_order if slot not in others)}"
        for row, others in ((a, stats_b), (b, stats_a))
        if any(slot not in others for slot in in_order)
    ]
    compared = f"{_size((a.id, b.id), by_role)}; they differ {_place(by_layer, by_role)}"
    return {
        "models": [a.id, b.id],
        "base": a.base,
        "sentence": (
            f"{a.id} and {b.id} {_relation(update_cosine, cosine)}. {'; '.join([compared, *only])}."
        ),
        "unit": "relative" if relative else "absolute",
        "cosine": cosine,
        "update_cosine": update_cosine,
        "by_layer": by_layer,
        "by_role": by_role,
        "most_different": sorted(
            slots, key=lambda slot: -abs(slot["change"][0] - slot["change"][1])
        )[:MOST_CHANGED],
        "slots": slots,
    }


def _cosines(a: SketchMatrix, b: SketchMatrix) -> tuple[float | None, dict[Slot, float]]:
    """Of the updates, by the first block of their sketches: over all slots, where one that a model
    lacks counts as zero, and of every slot that both have."""
    import numpy as np

    lengths = [np.linalg.norm(matrix.weights[0, :, 0].astype(np.float64)) for matrix in (a, b)]
    if not all(lengths):
        return None, {}
    whole, by_slot = 0.0, {}
    for slot, block, shares in a.shares(b):
        if block == 0:
            whole += float(shares[0, 0])
            weights = (matrix.weights[0, matrix.slots.index(slot), 0] for matrix in (a, b))
            product = float(np.prod(list(weights), dtype=np.float64))
            if product > 0:
                by_slot[slot] = float(shares[0, 0] * np.prod(lengths) / product)
    return whole, by_slot


def _relation(of_updates: float | None, cosine: float | None) -> str:
    cosines = {"update cosine": of_updates, "cosine": cosine}
    shown = [f"{name} {value:.3f}" for name, value in cosines.items() if value is not None]
    known = f" ({', '.join(shown)})" if shown else ""
    if of_updates is None:
        return f"cannot be compared direction by direction{known}"
    if of_updates >= ALIKE:
        return f"are nearly the same update{known}"
    if of_updates >= RELATED:
        return f"are related updates{known}"
    return f"point in different directions{known}"


def _size(names: tuple[str, str], by_role: Mapping[str, Pair]) -> str:
    lengths = [sum(pair[side] ** 2 for pair in by_role.values()) ** 0.5 for side in (0, 1)]
    if min(lengths) > 0 and max(lengths) / min(lengths) >= 1.2:
        larger = names[lengths.index(max(lengths))]
        return f"{larger} changed its base {max(lengths) / min(lengths):.1f} times as much"
    return "They changed their base about equally"


def _place(by_layer: Mapping[str, Pair], by_role: Mapping[str, Pair]) -> str:
    def widest(norms: Mapping[str, Pair]) -> str:
        a, b = (sum(pair[side] ** 2 for pair in norms.values()) or 1.0 for side in (0, 1))
        return max(norms, key=lambda name: abs(norms[name][0] ** 2 / a - norms[name][1] ** 2 / b))

    stack, layer = widest(by_layer).split()
    return f"most in layer {layer} of the {stack} and in role {widest(by_role)}"


def _listed(slots: Iterable[Slot]) -> str:
    names = [str(slot) for slot in slots]
    shown = ", ".join(names[:2])
    return shown + (f" and {len(names) - 2} more slots" if len(names) > 2 else "")


def show_diff(document: Document) -> Shown:
    models = document["models"]
    yield document["sentence"]
    for title, sums in (("|ΔW| by role", "by_role"), ("|ΔW| by layer", "by_layer")):
        norms = [(name, f"{a:.3g}", f"{b:.3g}") for name, (a, b) in document[sums].items()]
        yield Section(columns=(title, *models), rows=norms[:12], names=models)
    rows = [
        (
            slot["slot"],
            *(f"{value:.3g}" for value in slot["change"]),
            " / ".join(f"{value:.1f}" for value in slot["stable_rank"]),
            share(slot["update_cosine"]),
        )
        for slot in document["most_different"]
    ]
    unit = "|ΔW|/|W|" if document["unit"] == "relative" else "|ΔW|"
    heads = (f"most different, {unit}", *models, "stable rank", "update cosine")
    yield Section(columns=heads, rows=rows, names=models)


command = asking(Diff, show_diff, "diff someone/bert-imdb someone/bert-sst2")
