"""The head of a transformers model, run by the model's own code over states that are given."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils.generic import ModelOutput

from ...arrays import Float, Float32


def head_alone(whole: nn.Module) -> nn.Module:
    """The model around a backbone that returns the states that it is given."""
    head = copy.copy(whole)
    backbone = str(whole.base_model_prefix)
    head.__dict__["_modules"] = {**whole._modules, backbone: _GivenStates()}
    return head


def head_logits(
    head: nn.Module, states: Float[torch.Tensor, "tokens dim"]
) -> Float32[torch.Tensor, "tokens vocabulary"]:
    """What the head makes of the states, as if they were the backbone's output."""
    logits: torch.Tensor = head(inputs_embeds=states[None]).logits[0]
    return logits.float()


class _GivenStates(nn.Module):
    """A backbone whose last states are the embeddings that it is given."""

    @property
    def decoder(self) -> _GivenStates:
        """OPT's head asks the decoder of its backbone."""
        return self

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> _GivenOutput:
        return _GivenOutput(last_hidden_state=inputs_embeds)


@dataclass
class _GivenOutput(ModelOutput):
    """What the heads of transformers read of a backbone's output."""

    last_hidden_state: torch.Tensor | None = None
    past_key_values: None = None
    hidden_states: None = None
    attentions: None = None
    cross_attentions: None = None
    router_logits: None = None
