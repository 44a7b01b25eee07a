"""The config file with which mergekit makes a merge again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import torch

from ...errors import RequestError
from .merges import Merge, attention_name
from .parents import Parent

WITH_BASE = ("task_arithmetic", "ties", "dare_linear", "dare_ties")

SAME = 5e-4
"""Weights that differ by less are one weight."""

Weights = tuple[float, float]
"""Of attention, and of the other matrices of a layer."""


def mergekit_config(merge: Merge) -> str:
    """YAML; comments say how much of the merge it gives, and what it cannot reproduce.

    Raises:
        RequestError: no file gives such a merge.
    """
    found, proof = merge.parentage, merge.proof
    method = found.method
    if not merge.is_merge or method is None or not found.parents:
        raise RequestError(f"{merge.model}: no config file: {merge.sentence}")
    lines = [f"# deltadex trace {_text(merge.model)}", *(f"# {line}" for line in _comments(merge))]
    lines.append(f"merge_method: {method}")
    if method in WITH_BASE:
        lines.append(f"base_model: {_source(merge, merge.base)}")
    if method == "slerp":
        lines.append(f"base_model: {_source(merge, found.parents[0].model)}")
    arithmetic = merge.dtype if proof is None else proof.arithmetic
    lines.append(f"dtype: {_name(arithmetic)}")
    if arithmetic != merge.dtype:
        lines.append(f"out_dtype: {_name(merge.dtype)}")
    if method in WITH_BASE and proof is not None:
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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _comments(merge: Merge) -> Iterator[str]:
    found, proof = merge.parentage, merge.proof
    yield _text(merge.sentence)
    if proof is None:
        yield "not compared with the weights: the recipe is by sketches alone"
    elif proof.is_drawn:
        yield "entries were drawn at random: a run of this file keeps others"
    else:
        share, chance = f"{proof.share:.2%}", f"{proof.chance:.2%}"
        yield f"reproduces {share} of {proof.entries} sampled entries; a wrong recipe {chance}"
    if merge.unequal:
        names = ", ".join(merge.unequal)
        yield _text(f"of unequal shapes, no part of this recipe: {names}; mergekit stops at them:")
        yield "name models without them, or of a vocabulary write `tokenizer: {source: base}`"
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
    if proof is not None and proof.densities:
        return proof.densities
    return [found.density] * len(found.parents)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _layers(merge: Merge) -> list[list[Weights]]:
    """Weights of each parent in each layer; none where they do not vary, or not in one stack."""
    parents, proof = merge.parentage.parents, merge.proof
    if not any(parent.layers for parent in parents):
        return []
    stacks = {stack for parent in parents for stack, _ in parent.layers}
    stacks |= {slot.stack for slot, _ in merge.modules}
    if len(stacks) != 1:
        return []
    n_layers = 1 + max(
        [layer for parent in parents for _, layer in parent.layers]
        + [slot.layer for slot, _ in merge.modules]
    )
    by_place = {} if proof is None else proof.by_place
    tells = attention_name(merge.modules) is not None
    rows = []
    for layer in range(n_layers):
        row = [_layer_weight(parent, layer) for parent in parents]
        beside = by_place.get((layer, False), row)
        inside = by_place.get((layer, True), row if tells else beside)
        rows.append(list(zip(inside, beside, strict=True)))
    return rows


def _layer_weight(parent: Parent, layer: int) -> float:
    return next((w for (_, n), w in parent.layers.items() if n == layer), parent.weight)


def _slices(merge: Merge, method: str, layers: list[list[Weights]]) -> list[str]:
    """Runs of layers with equal weights."""
    parents, densities = merge.parentage.parents, _densities(merge)
    attention = attention_name(merge.modules)
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
