"""The config file with which mergekit makes a merge again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import yaml

from ...errors import RequestError
from .file_on_rows import Reconstruction
from .merges import FoundMerge, attention_name

WITH_BASE = ("task_arithmetic", "ties", "dare_linear", "dare_ties")

SAME_DIGITS = 3
"""Weights of layers that agree in so many digits are one weight."""

Weights = tuple[float, float]
"""Of attention, and of the other matrices of a layer."""


def mergekit_config(merge: FoundMerge) -> str:
    """YAML; comments say how much of the merge it gives, and what it cannot reproduce.

    Raises:
        RequestError: no file gives such a merge, or its weights were not read.
    """
    proof = merge.proof
    if not merge.is_merge or merge.parentage.method is None or proof is None:
        raise RequestError(f"{merge.model}: no config file: {merge.sentence}")
    lines = (f"deltadex trace {_text(merge.model)}", *_comments(merge, proof))
    config = yaml.safe_dump(_config(merge, proof), sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in lines) + config


def _config(merge: FoundMerge, proof: Reconstruction) -> dict[str, Any]:
    method = merge.parentage.method
    config: dict[str, Any] = {"merge_method": method}
    if method in WITH_BASE or method == "slerp":
        config["base_model"] = merge.sources[0 if method == "slerp" else -1]
    config["dtype"] = str(proof.arithmetic).removeprefix("torch.")
    if proof.arithmetic != merge.dtype:
        config["out_dtype"] = str(merge.dtype).removeprefix("torch.")
    if method in WITH_BASE:
        length = {"lambda": proof.scale} if proof.scale != 1 else {}
        config["parameters"] = {"normalize": proof.normalises, **length}
    return config | (_slices(merge, proof) if proof.by_place else _models(merge, proof))


def _models(merge: FoundMerge, proof: Reconstruction) -> dict[str, Any]:
    parents = merge.parentage.parents
    models, shared = _weighted(merge, proof, [_number(parent.weight) for parent in parents], {})
    rest = 1 - sum(parent.weight for parent in parents)
    if merge.parentage.method == "linear" and round(rest, SAME_DIGITS):
        models.append({"model": merge.sources[-1], "parameters": {"weight": _number(rest)}})
    return {"models": models} | shared


def _weighted(
    merge: FoundMerge, proof: Reconstruction, weights: Sequence[Any], span: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parents in a span of layers with their parameters, and those that they share."""
    models = [{"model": source, **span} for source in merge.sources[:-1]]
    if merge.parentage.method == "slerp":
        return models, {"parameters": {"t": weights[1]}}
    for place, (model, weight) in enumerate(zip(models, weights, strict=True)):
        sparse = {"density": _number(proof.densities[place])} if proof.densities else {}
        model["parameters"] = {"weight": weight, **sparse}
    return models, {}


def _slices(merge: FoundMerge, proof: Reconstruction) -> dict[str, Any]:
    """Runs of layers with equal weights."""
    attention = attention_name(merge.modules)
    slices = []
    same = groupby(
        enumerate(_by_layer(merge, proof)), key=lambda row: np.round(row[1], SAME_DIGITS).tolist()
    )
    for run in (list(own) for _, own in same):
        span = {"layer_range": [run[0][0], run[-1][0] + 1]}
        settings = [_setting(weights, attention) for weights in run[0][1]]
        sources, shared = _weighted(merge, proof, settings, span)
        if merge.parentage.method in WITH_BASE:
            sources.append({"model": merge.sources[-1], **span})
        slices.append({"sources": sources} | shared)
    return {"slices": slices}


def _by_layer(merge: FoundMerge, proof: Reconstruction) -> list[list[Weights]]:
    """Weights of each parent in each layer; their means in one that all left as it was."""
    rows = []
    for layer in range(1 + max(slot.layer for slot, _ in merge.modules)):
        beside = proof.by_place.get((layer, False), proof.weights)
        inside = proof.by_place.get((layer, True), beside)
        rows.append(list(zip(inside, beside, strict=True)))
    return rows


def _setting(weights: Weights, attention: str | None) -> Any:
    inside, beside = map(_number, weights)
    if attention is None or round(inside - beside, SAME_DIGITS) == 0:
        return beside
    return [{"filter": attention, "value": inside}, {"value": beside}]


def _number(value: float) -> float:
    return float(f"{value:.6g}")


def _comments(merge: FoundMerge, proof: Reconstruction) -> Iterator[str]:
    yield _text(merge.sentence)
    if proof.is_drawn:
        yield "entries were drawn at random: a run of this file keeps others"
    else:
        share, chance = f"{proof.share:.2%}", f"{proof.chance:.2%}"
        yield f"reproduces {share} of {proof.entries} sampled entries; a wrong recipe {chance}"
    if merge.unequal:
        names = ", ".join(merge.unequal)
        yield _text(f"of unequal shapes, no part of this recipe: {names}; mergekit stops at them:")
        yield "name models without them, or of a vocabulary write `tokenizer: {source: base}`"


def _text(text: str) -> str:
    return " ".join(text.split())
