"""The config file with which mergekit makes a merge again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import yaml

from ...errors import RequestError
from .merges import Merge, attention_name
from .parents import Parent

WITH_BASE = ("task_arithmetic", "ties", "dare_linear", "dare_ties")

SAME_DIGITS = 3
"""Weights of layers that agree in so many digits are one weight."""

Weights = tuple[float, float]
"""Of attention, and of the other matrices of a layer."""


def mergekit_config(merge: Merge) -> str:
    """YAML; comments say how much of the merge it gives, and what it cannot reproduce.

    Raises:
        RequestError: no file gives such a merge.
    """
    found = merge.parentage
    if not merge.is_merge or found.method is None or not found.parents:
        raise RequestError(f"{merge.model}: no config file: {merge.sentence}")
    lines = (f"deltadex trace {_text(merge.model)}", *_comments(merge))
    config = yaml.safe_dump(_config(merge), sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + config


def _config(merge: Merge) -> dict[str, Any]:
    proof, method = merge.proof, merge.parentage.method
    arithmetic = merge.dtype if proof is None else proof.arithmetic
    config: dict[str, Any] = {"merge_method": method}
    if method in WITH_BASE or method == "slerp":
        config["base_model"] = _sources(merge)[0 if method == "slerp" else -1]
    config["dtype"] = str(arithmetic).removeprefix("torch.")
    if arithmetic != merge.dtype:
        config["out_dtype"] = str(merge.dtype).removeprefix("torch.")
    if method in WITH_BASE and proof is not None:
        length = {"lambda": proof.scale} if proof.scale != 1 else {}
        config["parameters"] = {"normalize": proof.normalises, **length}
    layers = _by_layer(merge)
    return config | ({"slices": _slices(merge, layers)} if layers else _models(merge))


def _models(merge: Merge) -> dict[str, Any]:
    parents, method = merge.parentage.parents, merge.parentage.method
    weights = [_number(parent.weight) for parent in parents]
    if method == "slerp":
        models = [{"model": source} for source in _sources(merge)[:-1]]
        return {"models": models, "parameters": {"t": weights[1]}}
    models = _weighted(merge, weights)
    rest = round(1 - sum(parent.weight for parent in parents), SAME_DIGITS)
    if method == "linear" and rest:
        models.append({"model": _sources(merge)[-1], "parameters": {"weight": rest}})
    return {"models": models}


def _weighted(merge: Merge, weights: Sequence[Any]) -> list[dict[str, Any]]:
    """The parents with their weights and densities."""
    found, proof = merge.parentage, merge.proof
    densities: Sequence[float | None] = [found.density] * len(weights)
    if proof is not None and proof.densities:
        densities = proof.densities
    rows = []
    for source, weight, density in zip(_sources(merge), weights, densities, strict=False):
        sparse = {} if density is None else {"density": _number(density)}
        rows.append({"model": source, "parameters": {"weight": weight, **sparse}})
    return rows


def _slices(merge: Merge, layers: Sequence[Sequence[Weights]]) -> list[dict[str, Any]]:
    """Runs of layers with equal weights."""
    method, attention = merge.parentage.method, attention_name(merge.modules)
    slices = []
    same = groupby(enumerate(layers), key=lambda row: _rounded(row[1]))
    for run in (list(own) for _, own in same):
        span = {"layer_range": [run[0][0], run[-1][0] + 1]}
        settings = [_setting(weights, attention) for weights in run[0][1]]
        if method == "slerp":
            sources = [{"model": source, **span} for source in _sources(merge)[:-1]]
            slices.append({"sources": sources, "parameters": {"t": settings[1]}})
            continue
        sources = [{**row, **span} for row in _weighted(merge, settings)]
        if method in WITH_BASE:
            sources.append({"model": _sources(merge)[-1], **span})
        slices.append({"sources": sources})
    return slices


def _rounded(row: Sequence[Weights]) -> list[float]:
    return [round(weight, SAME_DIGITS) for weights in row for weight in weights]


def _setting(weights: Weights, attention: str | None) -> Any:
    inside, beside = map(_number, weights)
    if attention is None or round(inside - beside, SAME_DIGITS) == 0:
        return beside
    return [{"filter": attention, "value": inside}, {"value": beside}]


def _number(value: float) -> float:
    return float(f"{value:.6g}")


def _sources(merge: Merge) -> list[str]:
    """Folder or Hub id of each parent, an adapter's as `BASE+ADAPTER`; the base's last."""
    base = merge.sources.get(merge.base, merge.base)
    sources = []
    for parent in merge.parentage.parents:
        source = merge.sources.get(parent.model, parent.model)
        sources.append(f"{base}+{source}" if parent.model in merge.adapters else source)
    return [*sources, base]


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
    if any(parent.layers for parent in found.parents) and not _by_layer(merge):
        yield "weights vary by layer in more than one stack: these are their means"


def _text(text: str) -> str:
    return " ".join(text.split())


def _by_layer(merge: Merge) -> list[list[Weights]]:
    """Weights of each parent in each layer; none where they do not vary, or not in one stack."""
    parents, proof = merge.parentage.parents, merge.proof
    if not any(parent.layers for parent in parents):
        return []
    places = [place for parent in parents for place in parent.layers]
    places += [(slot.stack, slot.layer) for slot, _ in merge.modules]
    if len({stack for stack, _ in places}) != 1:
        return []
    by_place = {} if proof is None else proof.by_place
    tells = attention_name(merge.modules) is not None
    rows = []
    for layer in range(1 + max(layer for _, layer in places)):
        row = [_layer_weight(parent, layer) for parent in parents]
        beside = by_place.get((layer, False), row)
        inside = by_place.get((layer, True), row if tells else beside)
        rows.append(list(zip(inside, beside, strict=True)))
    return rows


def _layer_weight(parent: Parent, layer: int) -> float:
    return next((w for (_, n), w in parent.layers.items() if n == layer), parent.weight)
