"""The config file with which mergekit makes a merge again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from ...indexer import Key
from .merges import Merge
from .parents import Parent

ATTENTION = frozenset(("q", "k", "v", "qkv", "o", "cross_q", "cross_k", "cross_v", "cross_o"))

WITH_BASE = ("task_arithmetic", "ties", "dare_linear", "dare_ties")

SAME = 5e-4
"""Weights that differ by less are one weight."""

Weights = tuple[float, float]
"""Of attention, and of the other matrices of a layer."""


def mergekit_config(merge: Merge) -> str:
    """YAML; comments say how much of the merge it explains, and what it cannot reproduce."""
    found, proof = merge.parentage, merge.proof
    method = found.method or "task_arithmetic"
    lines = [f"# deltadex trace {_text(merge.model)}", *(f"# {line}" for line in _comments(merge))]
    lines.append(f"merge_method: {method}")
    if method in WITH_BASE:
        lines.append(f"base_model: {_source(merge, merge.base)}")
    if method == "slerp":
        lines.append(f"base_model: {_source(merge, found.parents[0].model)}")
    lines.append(f"dtype: {merge.dtype or 'float32'}")
    if method in WITH_BASE and proof is not None and proof.is_proven:
        lines.append("parameters:")
        lines.append(f"  normalize: {json.dumps(proof.normalises)}")
        if proof.scale != 1:
            lines.append(f"  lambda: {proof.scale:g}")
    layers = _layers(merge)
    if layers:
        lines += _slices(merge, method, layers)
    else:
        lines += _models(merge, method)
    return "\n".join(lines) + "\n"


def _comments(merge: Merge) -> Iterator[str]:
    found, proof = merge.parentage, merge.proof
    yield _text(merge.sentence)
    if proof is None:
        yield "not compared with the weights: the recipe is by sketches alone"
    else:
        share, chance = f"{proof.share:.2%}", f"{proof.chance:.2%}"
        yield f"reproduces {share} of {proof.entries} sampled entries; a wrong recipe {chance}"
    if found.method in ("dare_linear", "dare_ties"):
        yield "the entries are drawn at random: another run keeps others"
    if found.method is None:
        yield "the method is not known"
    if any(parent.layers for parent in found.parents) and not _layers(merge):
        yield "weights vary by layer in more than one stack: these are their means"


def _text(text: str) -> str:
    return " ".join(text.split())


def _source(merge: Merge, name: str) -> str:
    source = merge.sources.get(name, name)
    if name in merge.adapters:
        source = f"{merge.sources.get(merge.base, merge.base)}+{source}"
    return json.dumps(source, ensure_ascii=False)


def _models(merge: Merge, method: str) -> list[str]:
    parents = merge.parentage.parents
    if method == "slerp":
        names = [f"  - model: {_source(merge, parent.model)}" for parent in parents]
        return ["models:", *names, "parameters:", f"  t: {_number(parents[1].weight)}"]
    lines = ["models:"]
    for parent, density in zip(parents, _densities(merge), strict=True):
        lines += [f"  - model: {_source(merge, parent.model)}", "    parameters:"]
        lines.append(f"      weight: {_number(parent.weight)}")
        if density is not None:
            lines.append(f"      density: {_number(density)}")
    rest = 1 - sum(parent.weight for parent in parents)
    if method == "linear" and abs(rest) > SAME:
        lines += [f"  - model: {_source(merge, merge.base)}", "    parameters:"]
        lines.append(f"      weight: {_number(rest)}")
    return lines


def _densities(merge: Merge) -> Sequence[float | None]:
    found, proof = merge.parentage, merge.proof
    if proof is not None and proof.is_proven and proof.densities:
        return proof.densities
    return [found.density] * len(found.parents)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _layers(merge: Merge) -> list[list[Weights]]:
    """Weights of each parent in each layer; none where they do not vary, or not in one stack."""
    parents, proof = merge.parentage.parents, merge.proof
    if not any(parent.layers for parent in parents):
        return []
    by_matrix: Sequence[Mapping[Key, float]] = proof.by_matrix if proof is not None else ()
    stacks = {stack for parent in parents for stack, _ in parent.layers}
    stacks |= {slot.stack for slot, _ in merge.modules}
    if len(stacks) != 1:
        return []
    n_layers = 1 + max(
        [layer for parent in parents for _, layer in parent.layers]
        + [slot.layer for slot, _ in merge.modules]
    )
    rows = []
    for layer in range(n_layers):
        row = []
        for place, parent in enumerate(parents):
            matrices = by_matrix[place] if by_matrix else {}
            row.append(_layer_weights(parent, matrices, layer))
        rows.append(row)
    return rows


def _layer_weights(parent: Parent, matrices: Mapping[Key, float], layer: int) -> Weights:
    known = next((w for (_, n), w in parent.layers.items() if n == layer), parent.weight)
    inside = [w for (s, _), w in matrices.items() if s.layer == layer and s.role in ATTENTION]
    beside = [w for (s, _), w in matrices.items() if s.layer == layer and s.role not in ATTENTION]
    means = [sum(values) / len(values) if values else known for values in (inside, beside)]
    return means[0], means[1]


def _slices(merge: Merge, method: str, layers: list[list[Weights]]) -> list[str]:
    """Runs of layers with equal weights."""
    parents, densities = merge.parentage.parents, _densities(merge)
    attention = _attention_name(merge)
    lines, first = ["slices:"], 0
    while first < len(layers):
        last = first + 1
        while last < len(layers) and _equal(layers[first], layers[last]):
            last += 1
        span, row = f"    layer_range: [{first}, {last}]", layers[first]
        lines.append("- sources:")
        for place, parent in enumerate(parents):
            lines += [f"  - model: {_source(merge, parent.model)}", span]
            if method != "slerp":
                lines.append("    parameters:")
                lines += _setting("weight", row[place], attention, "      ")
                if (density := densities[place]) is not None:
                    lines.append(f"      density: {_number(density)}")
        if method in WITH_BASE:
            lines += [f"  - model: {_source(merge, merge.base)}", span]
        if method == "slerp":
            lines += ["  parameters:", *_setting("t", row[1], attention, "    ")]
        first = last
    return lines


def _equal(one: Sequence[Weights], other: Sequence[Weights]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(abs(a - b) <= SAME for x, y in pairs for a, b in zip(x, y, strict=True))


def _setting(name: str, weights: Weights, attention: str | None, indent: str) -> list[str]:
    inside, beside = weights
    if attention is None or abs(inside - beside) <= SAME:
        return [f"{indent}{name}: {_number((inside + beside) / 2)}"]
    return [
        f"{indent}{name}:",
        f"{indent}  - filter: {attention}",
        f"{indent}    value: {_number(inside)}",
        f"{indent}  - value: {_number(beside)}",
    ]


def _attention_name(merge: Merge) -> str | None:
    """The part of module names that attention's have, and no others do."""
    names = {True: set[str](), False: set[str]()}
    first = True
    for (slot, _), module in merge.modules.items():
        parts = set(module.split("."))
        inside = slot.role in ATTENTION
        if not inside:
            names[False] |= parts
        elif first:
            names[True], first = parts, False
        else:
            names[True] &= parts
    return min(names[True] - names[False], default=None)
