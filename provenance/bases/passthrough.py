"""Whose layers a model's are, where it has them in other numbers than its base: a passthrough merge
takes whole layers of several models, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ModelError, RequestError
from ...indexer import LayerMap, MatrixSample, folder_at, name_layers, stack_of
from ...store import Catalog
from .changes import equal_entries
from .opened_model import OpenedModel, open_model

MOST_COMPARED = 256
"""Indexed models that are opened for their layers."""

TAKEN = 0.999
"""Share of a layer's sampled entries that are another model's, as stored, where it is its layer."""

NEARER = 0.5
"""|model − other| / |model − base| of a layer up to which it is the other's, and changed since."""

Place = tuple[str, int]
"""Stack and number of a layer."""

Runs = Mapping[Place, Mapping[str, MatrixSample]]
"""The sampled matrices of each layer, by group."""


@dataclass(frozen=True, slots=True)
class Source:
    """A layer of another model; `is_equal`: not changed since."""

    model: str
    layer: int
    is_equal: bool


@dataclass(slots=True)
class LayerSources:
    """Where the layers of a model come from.

    Attributes:
        layers: Of each of its layers, what it may be, by model.
        compared: How many models were compared; `left_out`: reasons why others were not.
        copies: Models of the same layers in the same order.
    """

    layers: dict[Place, dict[str, Source]]
    compared: int = 0
    left_out: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)

    def chosen(self) -> dict[Place, Source]:
        """One source of each layer that has any: of those that share most layers first."""
        left, chosen = dict(self.layers), dict[Place, Source]()
        while True:
            counts: dict[str, int] = defaultdict(int)
            for sources in left.values():
                for model, source in sources.items():
                    counts[model] += 1 + source.is_equal
            if not counts:
                return chosen
            most = max(sorted(counts), key=counts.__getitem__)
            for place in [place for place, sources in left.items() if most in sources]:
                chosen[place] = left.pop(place)[most]


def find_layer_sources(
    catalog: Catalog,
    model: OpenedModel,
    found: LayerMap,
    bases: Mapping[str, Sequence[MatrixSample]],
    base: str,
) -> LayerSources:
    """The known bases' and the indexed models' layers that a model has.

    Args:
        bases: The runs of each known base, by name; `base` is the model's.
    """
    own = _own_runs(model, found)
    sources = LayerSources({place: {} for place in own})
    for name, samples in bases.items():
        _compare(sources, own, name, _runs(samples), _runs(bases[base]), found)
    for name, samples in _indexed(catalog, base, model, sources):
        _compare(sources, own, name, _runs(samples), _runs(bases[base]), found)
    return sources


def _own_runs(model: OpenedModel, found: LayerMap) -> Runs:
    if found.by_name:
        return _runs(model.samples)
    runs: dict[Place, dict[str, MatrixSample]] = defaultdict(dict)
    for child, own in found.pairs:
        runs[stack_of(own.group), child.layer][own.group] = child
    return runs


def _runs(samples: Sequence[MatrixSample]) -> Runs:
    runs: dict[Place, dict[str, MatrixSample]] = defaultdict(dict)
    for sample in samples:
        runs[stack_of(sample.group), sample.layer][sample.group] = sample
    return runs


def _indexed(
    catalog: Catalog, base: str, model: OpenedModel, sources: LayerSources
) -> Iterator[tuple[str, Sequence[MatrixSample]]]:
    """The full checkpoints of the base's family whose files are here."""
    rows = catalog.models(base=base, status="indexed") if base in catalog.bases() else []
    full = [row for row in rows if row.record.kind == "full" and row.record.source != model.source]
    here = [row for row in full if folder_at(row.record.source) is not None]
    reasons = (
        (len(rows) - sum(row.record.kind == "full" for row in rows), "adapters"),
        (len(full) - len(here), "whose files are not on this machine"),
        (max(0, len(here) - MOST_COMPARED), f"beyond the first {MOST_COMPARED}"),
    )
    sources.left_out += [f"{n} {why}" for n, why in reasons if n]
    for row in here[:MOST_COMPARED]:
        try:
            with open_model(row.record.source) as other:
                yield row.id, other.samples
        except (ModelError, RequestError):
            sources.left_out.append(f"{row.id}, which cannot be read")


def _compare(
    sources: LayerSources, own: Runs, name: str, theirs: Runs, base: Runs, found: LayerMap
) -> None:
    """Add the layers of a model that are another one's."""
    base_layer = {(stack, layer): (stack, number) for stack, layer, number in found.layers}
    sources.compared += 1
    matched = {}
    for place, runs in own.items():
        best: tuple[float, float, int] | None = None
        for (stack, layer), others in theirs.items():
            if stack == place[0] and (compared := _distance(runs, others)) is not None:
                candidate = (-compared[1], compared[0], layer)
                best = candidate if best is None else min(best, candidate)
        if best is None:
            continue
        to_base = _distance(runs, base.get(base_layer.get(place, ("", -1)), {}))
        is_equal = -best[0] >= TAKEN
        if is_equal or (to_base is not None and best[1] <= NEARER**2 * to_base[0]):
            matched[place] = Source(name, best[2], is_equal)
    if own.keys() == theirs.keys() == matched.keys() and all(
        source.is_equal and source.layer == place[1] for place, source in matched.items()
    ):
        sources.copies.append(name)
        return
    for place, source in matched.items():
        sources.layers[place][name] = source


def _distance(
    ours: Mapping[str, MatrixSample], theirs: Mapping[str, MatrixSample]
) -> tuple[float, float] | None:
    """|a − b|² over what is sampled of both layers, and the share of equal entries."""
    square, same, total = 0.0, 0, 0
    for group in ours.keys() & theirs.keys():
        if ours[group].shape == theirs[group].shape:
            equal, n = equal_entries(ours[group], theirs[group])
            same, total = same + equal, total + n
            a, b = (m.values[:n].astype(np.float64) for m in (ours[group], theirs[group]))
            square += float(np.square(np.nan_to_num(a - b)).sum())
    return (square, same / total) if total else None


def describe_sources(sources: LayerSources) -> tuple[str, list[dict[str, Any]], bool]:
    """What is known of a model's layers as a sentence; a row for each parent; whether all is."""
    chosen = sources.chosen()
    by_model: dict[str, list[tuple[Place, Source]]] = defaultdict(list)
    for place in sorted(chosen):
        by_model[chosen[place].model].append((place, chosen[place]))
    parents = [
        {
            "model": name,
            "weight": round(len(pairs) / len(sources.layers), 4),
            "slices": [[place[1], source.layer] for place, source in pairs],
        }
        for name, pairs in by_model.items()
    ]
    missing = [place[1] for place in sorted(sources.layers.keys() - chosen.keys())]
    named = " and ".join(
        f"{name} ({name_layers([source.layer for _, source in pairs])})"
        for name, pairs in by_model.items()
    )
    is_complete = not missing and all(source.is_equal for source in chosen.values())
    compared = f"{sources.compared} model{'s' * (sources.compared != 1)} that were compared"
    beside = f"; not compared: {', '.join(sources.left_out)}" if sources.left_out else ""
    if not chosen:
        return f"its layers are those of none of the {compared}{beside}", [], False
    what = "a passthrough merge of" if len(by_model) > 1 else "its layers are those of"
    since = "" if all(s.is_equal for s in chosen.values()) else ", changed since"
    rest = f"; {name_layers(missing)} of none of the {compared}{beside}" if missing else ""
    return f"{what} {named}{since}{rest}", parents, is_complete
