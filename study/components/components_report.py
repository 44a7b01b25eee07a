"""What the components study reports: records, and their documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays import Float64
from ..report_json import JsonRecord
from .linear_fit import LinearFits
from .local_shift import ZERO


@dataclass(frozen=True, slots=True, kw_only=True)
class Against(JsonRecord):
    """A stream of a fine-tune compared with its base's.

    Attributes:
        correlation: Spearman's ρ of both models' importance over tokens; NaN where constant.
        term_shift: Mean |x' − x| / |e| of each term.
        term_shift_share: Mean share of each term in the change of the hidden state.
        total_shift: Mean relative change of the hidden state.
        local_shift: By block and `local_terms`: mean change of the sub-layer's own output on the
            base's input, relative to that input.
        local_embedding: The same of the embedding output.
    """

    correlation: Float64[np.ndarray, "layers terms"]
    correlation_method: str
    term_shift: Float64[np.ndarray, "layers terms"]
    term_shift_share: Float64[np.ndarray, "layers terms"]
    total_shift: Float64[np.ndarray, " layers"]
    local_terms: tuple[str, ...]
    local_shift: Float64[np.ndarray, "blocks local_terms"]
    local_embedding: float

    @property
    def most_edited(self) -> dict[str, Any] | None:
        """`layer` and `term` with the largest local shift; None where nothing changed."""
        return most_edited({"local_shift": self.local_shift, "local_terms": self.local_terms})

    def to_json(self) -> dict[str, Any]:
        """The fields and the most edited term."""
        return JsonRecord.to_json(self) | {"most_edited": self.most_edited}


def most_edited(stack: Mapping[str, Any]) -> dict[str, Any] | None:
    """`layer` and `term` of the largest local shift in a document; stored ones of earlier versions
    count layers from 1 there."""
    shifts = np.array(stack["local_shift"], dtype=np.float64)
    if not shifts.size or shifts.max() <= ZERO:
        return None
    layer, term = np.unravel_index(int(shifts.argmax()), shifts.shape)
    return {"layer": int(layer), "term": stack["local_terms"][int(term)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShares(JsonRecord):
    """The term of self-attention by block and head.

    Attributes:
        importance: Mean of μ in the output of the head's own block. Summed over heads, what the
            block's attention adds to this hidden state.
        importance_last: Mean of μ in the last hidden state. Summed over blocks and heads, the
            importance of attention there.
        local_shift: With a base: mean change of the head's own output on the base's input,
            relative to that input.
    """

    importance: Float64[np.ndarray, "blocks heads"]
    importance_last: Float64[np.ndarray, "blocks heads"]
    local_shift: Float64[np.ndarray, "blocks heads"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackComponents(JsonRecord):
    """One residual stream.

    Attributes:
        layers: `0` is the embedding output, `final` follows the final norm.
        absent: Terms that are zero everywhere, as no module makes them.
        importance: Mean of μ = ⟨e, x⟩ / |e|² over tokens; sums to 1 over terms.
        norm_ratio: Mean |x| / |e|.
        error: Largest relative error of the sum of terms, over layers.
        heads: On request.
        linear: On request.
    """

    name: str = field(repr=False)
    layers: tuple[str, ...]
    terms: tuple[str, ...]
    absent: tuple[str, ...]
    importance: Float64[np.ndarray, "layers terms"]
    importance_sd: Float64[np.ndarray, "layers terms"]
    norm_ratio: Float64[np.ndarray, "layers terms"]
    error: float
    heads: HeadShares | None = None
    linear: LinearFits | None = None
    against: Against | None = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The fields; those of the comparison beside them."""
        compared = {} if self.against is None else self.against.to_json()
        return JsonRecord.to_json(self) | compared


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsReport(JsonRecord):
    """Every stream of one model, over one set of texts."""

    model: str
    against: str | None
    n_texts: int = field(metadata={"key": "texts"})
    n_tokens: int = field(metadata={"key": "tokens"})
    keep_special: bool = field(metadata={"key": "special_tokens"})
    stacks: tuple[StackComponents, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The fields, and the streams by name."""
        stacks = {stack.name: stack.to_json() for stack in self.stacks}
        return JsonRecord.to_json(self) | {"stacks": stacks}
