"""Where the residual stream of a network is read and written: from a table, by model type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import nn

from ...errors import StudyError

EPSILONS = ("eps", "variance_epsilon", "epsilon")
CENTRING = ("CohereLayerNorm", "Cohere2LayerNorm", "DebertaLayerNorm", "OlmoLayerNorm")
FIXED_EPSILON = {"OlmoLayerNorm": 1e-5}
"""Norms whose ε is a number in their code."""
ONE_PLUS_GAIN = ("GemmaRMSNorm", "Gemma2RMSNorm", "Gemma3RMSNorm", "NemotronLayerNorm1P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sublayer:
    """A part of a block that adds to the stream.

    Attributes:
        term: `attention`, `feed_forward` or `source` (attention to the encoder).
        module: Computes the term; all its projections but the last read the stream.
        branch: The module whose output is added to the stream.
        norm: Normalises the sum, where the network normalises after adding.
        weights_sum_to_one: Whether attention weights do; with attention sinks they do not.
    """

    term: str
    module: nn.Module
    branch: nn.Module
    norm: nn.Module | None
    weights_sum_to_one: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One residual stream.

    Attributes:
        name: `encoder` or `decoder`.
        blocks: In order; fewer than layers where layers share blocks.
        first_norm: Normalises the embeddings, where the network normalises after adding.
        projection: Maps the normalised embeddings to the width of the stream.
        final_norm: Follows the last block.
        multiplier: Factor of everything that a block adds.
    """

    name: str
    blocks: tuple[nn.Module, ...]
    sublayers: tuple[tuple[Sublayer, ...], ...]
    first_norm: nn.Module | None
    projection: nn.Module | None
    final_norm: nn.Module | None
    multiplier: float

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of its decomposition, in printing order."""
        has_source = any(s.term == "source" for layer in self.sublayers for s in layer)
        source = ("source",) if has_source else ()
        return ("input", "attention", *source, "feed_forward", "bias")


def find_stacks(model: nn.Module, config: Any) -> tuple[Stack, ...]:
    """The streams of a headless model; a `StudyError` where the table does not know its type."""
    entry = _entry_of(config)
    multiplier = float(getattr(config, entry.get("multiplier", ""), None) or 1.0)
    try:
        return tuple(
            _stack(name, parts, model, multiplier) for name, parts in entry["stacks"].items()
        )
    except AttributeError as err:
        raise StudyError(f"this {config.model_type!r} model is built differently: {err}") from err


def require_supported(config: Any, name: str) -> None:
    """Pass if its configuration says that a model can be run and its streams found; else
    a `StudyError`."""
    inner = getattr(config, "text_config", None)  # what may be loaded of a multimodal model
    try:
        if inner is None or str(inner.model_type) not in _table():
            _entry_of(config)
        if config.is_encoder_decoder:
            decoder_start(config)
    except StudyError as err:
        raise StudyError(f"{name}: {err}") from None


def decoder_start(config: Any) -> int:
    """The token that a decoder begins with; by T5's convention the padding, where none is named."""
    for key in ("decoder_start_token_id", "pad_token_id"):
        token = getattr(config, key, None)
        if isinstance(token, int) and token >= 0:
            return token
    raise StudyError(
        "its config.json has neither decoder_start_token_id nor pad_token_id, "
        "so that its decoder cannot begin: add one of them"
    )


def _entry_of(config: Any) -> Mapping[str, Any]:
    def has(options: Mapping[str, Any]) -> bool:
        return all(getattr(config, name, None) == value for name, value in options.items())

    entries = _table().get(str(config.model_type))
    if entries is None:
        raise StudyError(
            f"unsupported architecture {config.model_type!r}; "
            f"supported: {', '.join(sorted(_table()))}"
        )
    entry = next((e for e in entries if has(e.get("when", {}))), entries[0])
    for option, value in entry.get("unless", {}).items():
        if getattr(config, option, None) == value:
            raise StudyError(
                f"architecture {config.model_type!r} with {option}={value} is not supported"
            )
    return entry


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ in ("Conv1D", "FalconLinear")


def _stack(name: str, parts: Mapping[str, Any], model: nn.Module, multiplier: float) -> Stack:
    before, star, after = parts["blocks"].partition(".*.")  # `*` stands for every child
    holders = [model.get_submodule(before)]
    if star:
        holders = [group.get_submodule(after) for group in holders[0].children()]
    blocks = tuple(block for holder in holders for block in holder.children())
    return Stack(
        name=name,
        blocks=blocks,
        sublayers=tuple(
            tuple(_sublayer(part, block) for part in parts["sublayers"]) for block in blocks
        ),
        first_norm=_optional(model, parts.get("first_norm")),
        projection=_optional(model, parts.get("projection")),
        final_norm=_optional(model, parts.get("final_norm")),
        multiplier=multiplier,
    )


def _sublayer(part: Mapping[str, Any], block: nn.Module) -> Sublayer:
    module, branch = block.get_submodule(part["module"]), block.get_submodule(part["branch"])
    return Sublayer(
        term=part["term"],
        module=module,
        branch=branch,
        norm=block.get_submodule(part["norm"]) if "norm" in part else None,
        weights_sum_to_one=part.get("weights_sum_to_one", True),
    )


def _optional(model: nn.Module, path: str | None) -> nn.Module | None:
    try:
        module = model.get_submodule(path) if path else None
    except AttributeError:
        return None
    return None if isinstance(module, nn.Identity) else module


def normalisation(norm: nn.Module) -> tuple[torch.Tensor, torch.Tensor | None, float, bool]:
    """(gain, bias, ε, whether it centres) of a layer norm or a root-mean-square norm."""
    gain, bias = getattr(norm, "weight", None), getattr(norm, "bias", None)
    centres = isinstance(norm, nn.LayerNorm) or type(norm).__name__ in CENTRING
    fixed = FIXED_EPSILON.get(type(norm).__name__)
    eps = next((getattr(norm, n) for n in EPSILONS if hasattr(norm, n)), fixed)
    if eps is None or not (centres or "rms" in type(norm).__name__.lower() or gain is not None):
        raise StudyError(f"unsupported normalisation {type(norm).__name__}")
    if gain is None:
        gain = torch.ones(())  # a scalar goes with tensors of any device
    if type(norm).__name__ in ONE_PLUS_GAIN:
        gain = 1.0 + gain
    return gain.detach().float(), None if bias is None else bias.detach().float(), eps, centres


@cache
def _table() -> Mapping[str, list[Mapping[str, Any]]]:
    """By model type, the ways in which it can be built."""
    entries: dict[str, list[Mapping[str, Any]]] = {}
    text = files(__package__).joinpath("anatomy.json").read_text("utf-8")
    for entry in json.loads(text).values():
        for kind in entry["types"]:
            entries.setdefault(kind, []).append(entry)
    return entries
