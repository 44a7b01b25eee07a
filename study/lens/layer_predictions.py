"""Predictions from the state of every layer, token by token, in one pass over the texts.

The logit lens (nostalgebraist 2020): the final norm and the head, applied to each layer's residual
stream. The last layer's predictions are the model's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError
from ..network.hidden_states import Batch, encoded, stream_layers
from ..texts import Text

if TYPE_CHECKING:
    from ..network.causal_model import CausalModel

LOGITS_AT_ONCE = 1 << 24
"""Numbers of a matrix of logits; three such matrices are in memory."""

BITS = 1 / float(np.log(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPredictions:
    """What each layer predicts for every token that counts; the last layer is the model's own.

    Attributes:
        text: Index of the token's text.
        top: The token with the largest logit.
        surprisal: −log₂ of the probability of the token that follows, in bits.
        kl: KL(last layer ‖ layer) of the distributions, in bits.
    """

    text: Int64[np.ndarray, " tokens"] = field(repr=False)
    top: Int64[np.ndarray, "layers tokens"] = field(repr=False)
    surprisal: Float32[np.ndarray, "layers tokens"] = field(repr=False)
    kl: Float32[np.ndarray, "layers tokens"] = field(repr=False)


def layer_predictions(
    model: CausalModel,
    texts: Sequence[Text],
    *,
    batch_size: int,
    max_tokens: int,
    watched: Callable[[Iterator[Batch]], Iterable[Batch]] = iter,
) -> LayerPredictions:
    """The predictions of all tokens but each text's first; special tokens are not predicted.

    Peak: every layer of one batch, three matrices of logits of 64 MiB or of one token, and 16
    bytes for each token and layer.

    Raises:
        StudyError: no token to predict, values that are not finite, or a head that the lens
            cannot read.
    """
    parts: list[LayerPredictions] = []
    # the first token of a text is what the second is predicted from
    batches = encoded(model.network, texts, batch_size=batch_size, max_tokens=max_tokens,
                      keep_first=True)  # fmt: skip
    with torch.inference_mode():
        for batch in watched(batches):
            layers = stream_layers(model.network, batch)
            if not parts:
                model.check(batch, layers[-1])
            rows, positions = np.nonzero(batch.counted[:, 1:])
            if len(rows):
                states = torch.stack([layer[rows, positions].float() for layer in layers])
                following = batch.ids[rows, positions + 1]
                text = (rows + batch.first).astype(np.int64)
                parts.append(_predict(model, states, following, text))
    if not parts:
        raise StudyError(f"{model.network.name}: the texts leave no token to predict")
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
        for name in ("text", "top", "surprisal", "kl")
    }
    for layer, finite in enumerate(np.isfinite(joined["surprisal"]).all(axis=1)):
        if not finite:
            raise StudyError(
                f"layer {layer} of {model.network.name} predicts NaN or infinity: "
                "check the model's weights"
            )
    return LayerPredictions(**joined)


def _predict(
    model: CausalModel,
    states: torch.Tensor,
    following: torch.Tensor,
    text: Int64[np.ndarray, " tokens"],
) -> LayerPredictions:
    """The predictions from states of shape (layers, tokens, dim), some tokens at a time."""
    n_layers, n_tokens, _ = states.shape
    top = torch.empty((n_layers, n_tokens), dtype=torch.int64)
    surprisal = torch.empty((n_layers, n_tokens))
    kl = torch.zeros((n_layers, n_tokens))
    size = max(1, LOGITS_AT_ONCE // int(model.network.config.vocab_size))
    for first in range(0, n_tokens, size):
        some = slice(first, first + size)
        target = following[some, None]
        own = model.logits(states[-1, some])
        own_log = own.logsumexp(dim=1)
        shares = (own - own_log[:, None]).exp_()
        own_mean = torch.einsum("tv,tv->t", shares, own)
        for layer in range(n_layers):
            is_last = layer == n_layers - 1
            logits = own if is_last else model.logits(states[layer, some])
            log = own_log if is_last else logits.logsumexp(dim=1)
            top[layer, some] = logits.argmax(dim=1).cpu()
            surprisal[layer, some] = (log - logits.gather(1, target)[:, 0]).cpu()
            if not is_last:
                # Σ p (log p − log q), with log p = own − own_log and log q = logits − log
                mean = torch.einsum("tv,tv->t", shares, logits)
                kl[layer, some] = (own_mean - own_log - mean + log).clamp_(min=0).cpu()
    return LayerPredictions(
        text=text,
        top=top.numpy(),
        surprisal=(surprisal * BITS).numpy(),
        kl=(kl * BITS).numpy(),
    )


def predicted_characters(
    model: CausalModel, texts: Sequence[Text], max_tokens: int
) -> Float64[np.ndarray, " texts"] | None:
    """Characters of the text that is predicted, by text; None without a tokenizer.

    They are the characters after the first token (all of them where that is a special token), up
    to where the text is cut.
    """
    tokenizer = model.network.tokenizer
    if tokenizer is None:
        return None
    limit = min(max_tokens, model.network.window or max_tokens)
    counts = np.zeros(len(texts))
    for number, text in enumerate(texts):
        encoding = tokenizer(
            text.text,
            truncation=True,
            max_length=limit,
            return_special_tokens_mask=True,
            return_offsets_mapping=bool(tokenizer.is_fast),
        )
        special = encoding["special_tokens_mask"]
        if not len(special):
            continue
        if tokenizer.is_fast:
            ends = [
                0 if mark else end
                for (_, end), mark in zip(encoding["offset_mapping"], special, strict=True)
            ]
            counts[number] = max(ends) - ends[0]
        else:
            kept = [t for t, mark in zip(encoding["input_ids"], special, strict=True) if not mark]
            lengths = [len(tokenizer.decode(part)) for part in (kept, kept[: 1 - special[0]])]
            counts[number] = lengths[0] - lengths[1]
    return counts


def decided_from(top: Int64[np.ndarray, "layers tokens"]) -> Int64[np.ndarray, " tokens"]:
    """The first layer from which a token's top prediction is the last layer's, up to the last."""
    same_from_here = np.cumprod((top == top[-1])[::-1], axis=0).sum(axis=0)
    first: Int64[np.ndarray, " tokens"] = len(top) - same_from_here
    return first
