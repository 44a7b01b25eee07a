"""One vector a text: what a head on top of a base reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...arrays import Float
from ...study.network import TaskModel
from .loss import EncodedExample, inputs_of


def pooled_states(
    model: TaskModel, batch: Sequence[EncodedExample]
) -> Float[torch.Tensor, "texts dim"]:
    """As heads of classes read a base: the pooler's output where the checkpoint has a pooler, else
    the first token's state; the last token's of a model that reads one way. Of an encoder-decoder
    the mean over the encoder's tokens.
    """
    inputs = inputs_of(model, batch)
    mask = inputs["attention_mask"]
    if getattr(model.config, "is_encoder_decoder", False):
        inputs.pop("use_cache", None)
        states = model.backbone.get_encoder()(**inputs).last_hidden_state  # type: ignore[operator]
        weights = mask[:, :, None].to(states.dtype)
        mean: torch.Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return mean
    output = model.backbone(**inputs)
    if model.has_pooler:
        pooled: torch.Tensor = output.pooler_output
        return pooled
    states = output.last_hidden_state
    place = mask.sum(dim=1) - 1 if reads_one_way(model) else torch.zeros_like(mask[:, 0])
    chosen: torch.Tensor = states[torch.arange(len(states), device=states.device), place]
    return chosen


def reads_one_way(model: TaskModel) -> bool:
    """Whether a token sees only those before it."""
    return "next" in (model.head, model.missing_head)
