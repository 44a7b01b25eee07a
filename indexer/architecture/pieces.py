"""From one stack's tensors to placements: turned, split, and taken apart by expert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records import Slot
from .attention_config import AttentionConfig
from .layouts import Fused, Rows, split_rows
from .located import Spot
from .placement import Placement

QUERY_WIDTH = "self_attn.o_proj"
"""The output projection whose width tells the query rows of a fused matrix beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackContext:
    """What the tensors of one stack tell about one another.

    Attributes:
        stored: Shapes are as on disk; otherwise they are (out, in) already.
        conv1d: The stack uses GPT-2's Conv1D, stored in × out.
        inner_group: ALBERT's layers in one shared group.
        shapes: Of every placed tensor, by layer and suffix.
    """

    stack: str
    config: AttentionConfig
    stored: bool
    conv1d: bool
    inner_group: int
    shapes: Mapping[tuple[int, str], tuple[int, ...]]


def place_stack(
    stack: str, spots: Sequence[Spot], config: AttentionConfig, *, stored: bool
) -> Iterator[Placement]:
    """The placements of one stack, in no particular order."""
    inner = config.inner_group or 1 + max(spot.layer for spot in spots)
    context = StackContext(
        stack=stack,
        config=config,
        stored=stored,
        conv1d=stored and any(map(_is_conv1d_attention, spots)),
        inner_group=inner,
        shapes={(spot.layer, spot.suffix): spot.shape for spot in spots},
    )
    for spot in spots:
        yield from _place(spot, context)


def _is_conv1d_attention(spot: Spot) -> bool:
    """By shape: q, k and v together are wider than the input, so only in × out is flat."""
    return spot.rule.split == "c-attn" and spot.shape[0] < spot.shape[1]


def _place(spot: Spot, context: StackContext) -> Iterator[Placement]:
    """One placement for each role and expert of a tensor."""
    transposed = _is_transposed(spot, context)
    out, width = spot.shape[-2:][::-1] if transposed else spot.shape[-2:]
    layer = spot.layer
    if spot.groups:
        layer += spot.groups[0] * context.inner_group
    rows_of = _rows(spot, context, out, width, transposed)
    for index in range(spot.shape[0]) if spot.rule.stacked else (None,):
        for role, rows in rows_of.items():
            yield Placement(
                slot=Slot(context.stack, layer, role),
                part=_part(spot, index),
                module=spot.module,
                tensor=spot.tensor,
                index=index,
                transposed=transposed,
                rows=rows,
                shape=(_count(rows, out), width),
            )


def _is_transposed(spot: Spot, context: StackContext) -> bool:
    if not context.stored:
        return False
    if spot.rule.stacked:
        return _has_flat_experts(spot, context)
    return context.conv1d and spot.rule.conv1d


def _has_flat_experts(spot: Spot, context: StackContext) -> bool:
    """Whether stacked experts are stored in × out, as gpt_oss does: both halves tell.

    gate_up is twice as long as down on the side of the inner width, whichever that is.
    """
    gate_up = context.shapes.get((spot.layer, "mlp.experts.gate_up_proj"))
    down = context.shapes.get((spot.layer, "mlp.experts.down_proj"))
    if gate_up is None or down is None:
        return context.config.text_model_type == "gpt_oss"
    return gate_up[2] == 2 * down[1] and gate_up[1] == down[2]


def _rows(
    spot: Spot, context: StackContext, out: int, width: int, transposed: bool
) -> Mapping[str, Rows | None]:
    """Rows of each role; a fused matrix of unknown layout stays whole."""
    split = spot.rule.split
    if not split:
        return {spot.rule.role: None}
    if spot.rule.stacked and (transposed or context.config.text_model_type == "gpt_oss"):
        split = "gate-up-interleaved"
    output = context.shapes.get((spot.layer, QUERY_WIDTH))
    fused = Fused(
        out=out,
        width=width,
        config=context.config,
        head_rows=output[1] if output else None,
        maybe_conv1d=context.conv1d or not context.stored,
    )
    return split_rows(split, fused) or {spot.rule.role: None}


def _part(spot: Spot, index: int | None) -> str:
    if spot.rule.part != "expert":
        return spot.rule.part
    return f"expert.{spot.expert if index is None else index}"


def _count(rows: Rows | None, out: int) -> int:
    if rows is None:
        return out
    return len(range(out)[rows]) if isinstance(rows, slice) else len(rows)
