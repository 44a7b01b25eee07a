"""Causal language models with their own head: logits from any layer's state."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from ...arrays import Float
from ...errors import StudyError
from .anatomy import require_supported
from .hidden_states import Batch
from .language_head import head_alone, head_logits
from .model_loading import (
    Network,
    as_network,
    file_of,
    first_tokenizer,
    merge_adapter,
    quiet,
    refusing,
)

OTHER_HEAD = re.compile(r"For(?!CausalLM)\w+$")
"""Names of classes with a head of another task, such as `GPT2ForSequenceClassification`."""

WORST_ERROR = 1e-3
"""Difference from the model's own logits, relative to their size, above which it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalModel:
    """A causal language model in evaluation mode.

    Attributes:
        network: The model without head; it shares its weights with the others.
        whole: As transformers runs it.
        head: The same with a backbone that returns the states that it is given.
    """

    network: Network
    whole: nn.Module
    head: nn.Module

    def logits(
        self, states: Float[torch.Tensor, "tokens dim"]
    ) -> Float[torch.Tensor, "tokens vocabulary"]:
        """Final norm and head over states of any layer, by the model's own code after its backbone.

        So capped or scaled logits are as the model's.
        """
        norm = self.network.stacks[0].final_norm
        last = states if norm is None else norm(states)
        return head_logits(self.head, last)

    def check(self, batch: Batch, last: Float[torch.Tensor, "texts tokens dim"]) -> None:
        """Compare the logits of the last layer's states with those of the whole model.

        Raises:
            StudyError: the model does more between them than `logits` does.
        """
        own = self.whole(**batch.inputs(self.network)).logits.float()
        if not own.isfinite().all():  # of a broken model, which is another refusal
            return
        read = batch.mask.bool()
        try:
            found = self.logits(last[read])
        except RuntimeError as err:  # of another width, where the model projects it first
            raise self._refusal() from err
        if found.shape != own[read].shape:
            raise self._refusal()
        error = (found - own[read]).norm() / own[read].norm()
        if not error <= WORST_ERROR:
            raise self._refusal()

    def _refusal(self) -> StudyError:
        return StudyError(
            f"{self.network.name}: its head is more than a final norm and a matrix "
            f"({type(self.whole).__name__}); the logit lens cannot read its layers"
        )


def load_causal(
    source: str, *, name: str | None = None, base: str | None = None, device: str = "cpu"
) -> CausalModel:
    """The model at a folder or Hub id with its head, in float32; an adapter is merged.

    Args:
        base: As of `load_network`.

    Raises:
        StudyError: it is not causal, was saved without its head, or cannot be loaded.
    """
    name = name or source
    with refusing(name), quiet():
        path = file_of(source, "adapter_config.json")
        adapter = json.loads(path.read_text("utf-8")) if path else None
        if adapter:
            base = base or str(adapter.get("base_model_name_or_path") or "")
            task = adapter.get("task_type")
            if task not in (None, "CAUSAL_LM"):
                raise StudyError(f"{name}: an adapter for {task} has no language-model head")
            with refusing(f"{name}: its base {base} (--base FOLDER says where it is)"):
                whole = merge_adapter(_with_head(base, name), source)
        else:
            whole = _with_head(source, name)
        tokenizer = first_tokenizer(source, base)
    return as_causal(name, whole.to(device), tokenizer)


def as_causal(name: str, whole: nn.Module, tokenizer: Any) -> CausalModel:
    """A loaded model with its head, ready to run."""
    whole = whole.eval().requires_grad_(False)
    network = as_network(name, whole.get_submodule(str(whole.base_model_prefix)), tokenizer)
    return CausalModel(network=network, whole=whole, head=head_alone(whole))


def _with_head(source: str, name: str) -> nn.Module:
    config = transformers.AutoConfig.from_pretrained(source)
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING or not _is_causal(config):
        raise StudyError(
            f"{name}: {config.model_type} is no causal language model; "
            "the logit lens reads models that predict the next token"
        )
    require_supported(config, name)
    other = [kind for kind in config.architectures or () if OTHER_HEAD.search(kind)]
    if other:
        raise StudyError(f"{name}: saved as {other[0]}, without a language-model head")
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True
    )
    whole, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:
        heads = [key for key in missing if not key.startswith(f"{whole.base_model_prefix}.")]
        what = "its head: it was saved without" if heads else missing[0]
        raise StudyError(f"{name}: no weights for {what} ({len(missing)} tensors missing)")
    with_head: nn.Module = whole
    return with_head


def _is_causal(config: Any) -> bool:
    """Whether a type of the causal mapping reads one way: encoders are in the mapping as well."""
    encoders = transformers.MODEL_FOR_MASKED_LM_MAPPING
    return type(config) not in encoders and not getattr(config, "is_encoder_decoder", False)
