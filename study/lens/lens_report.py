"""The logit lens: what each layer predicts, and from which layer it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...arrays import Float, Float32, Int64
from ...errors import StudyError
from ...results import JsonRecord
from ..network.hidden_states import TextBatch, encoded, require_same_tokens, stream_layers
from ..texts import Estimate, OfTexts, OfTokens, Text, per_token, ratio

if TYPE_CHECKING:
    from ..network.language_head import CausalModel

LOGITS_AT_ONCE = 1 << 24
"""Numbers of a matrix of logits; three such matrices are in memory."""

BITS = 1 / float(np.log(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPredictions:
    """What each layer predicts for every token that counts; the last layer is the model's own.

    Attributes:
        top: The token with the largest logit.
        surprisal: −log₂ of the probability of the token that follows, in bits.
        kl: KL(last layer ‖ layer) of the distributions, in bits.
    """

    text: OfTokens = field(repr=False)
    top: Int64[np.ndarray, "layers tokens"] = field(repr=False)
    surprisal: Float32[np.ndarray, "layers tokens"] = field(repr=False)
    kl: Float32[np.ndarray, "layers tokens"] = field(repr=False)


def layer_predictions(
    model: CausalModel,
    texts: Sequence[Text],
    *,
    batch_size: int,
    max_tokens: int,
    watched: Callable[[Iterator[TextBatch]], Iterable[TextBatch]] = iter,
) -> LayerPredictions:
    """The predictions of all tokens but each text's first; special tokens are not predicted.

    The logit lens (nostalgebraist 2020): the final norm and the head, applied to each layer's
    residual stream. The last layer's predictions are the model's own.

    Peak: every layer of one batch, three matrices of logits of 64 MiB or of one token, and 16
    bytes for each token and layer.
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
    model: CausalModel, states: torch.Tensor, following: torch.Tensor, text: OfTokens
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
            logits, log = own, own_log
            if layer < n_layers - 1:
                logits = model.logits(states[layer, some])
                log = logits.logsumexp(dim=1)
                # Σ p (log p − log q), with log p = own − own_log and log q = logits − log
                mean = torch.einsum("tv,tv->t", shares, logits)
                kl[layer, some] = (own_mean - own_log - mean + log).clamp_(min=0).cpu()
            top[layer, some] = logits.argmax(dim=1).cpu()
            surprisal[layer, some] = (log - logits.gather(1, target)[:, 0]).cpu()
    return LayerPredictions(
        text=text, top=top.numpy(), surprisal=(surprisal * BITS).numpy(), kl=(kl * BITS).numpy()
    )


def predicted_characters(
    model: CausalModel, texts: Sequence[Text], max_tokens: int
) -> OfTexts | None:
    """Characters of the text that is predicted, by text; None without a fast tokenizer.

    They are the characters after the first token (all of them where that is a special token), up
    to where the text is cut.
    """
    tokenizer = model.network.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return None
    limit = min(max_tokens, model.network.window or max_tokens)
    counts = np.zeros(len(texts))
    for number, text in enumerate(texts):
        encoding = tokenizer(
            text.text,
            truncation=True,
            max_length=limit,
            return_special_tokens_mask=True,
            return_offsets_mapping=True,
        )
        special = encoding["special_tokens_mask"]
        ends = [
            0 if mark else end
            for (_, end), mark in zip(encoding["offset_mapping"], special, strict=True)
        ]
        counts[number] = max(ends, default=0) - sum(ends[:1])
    return counts


def decided_from(top: Int64[np.ndarray, "layers tokens"]) -> OfTokens:
    """The first layer from which a token's top prediction is the last layer's, up to the last."""
    same_from_here = np.cumprod((top == top[-1])[::-1], axis=0).sum(axis=0)
    first: OfTokens = len(top) - same_from_here
    return first


QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLens(JsonRecord):
    """What one layer predicts; layer 0 is the embedding output, the last one the model itself.

    Attributes:
        agreement: Share of tokens whose top prediction is the last layer's.
        bits_per_token: Cross-entropy of the tokens that follow.
        bits_per_character: The same bits over the characters predicted; None without a tokenizer.
        kl: KL(last layer ‖ layer), in bits.
        decided: Share of tokens whose top prediction no later layer changes.
    """

    layer: int
    agreement: float
    agreement_se: float | None
    bits_per_token: float
    bits_per_token_se: float | None
    bits_per_character: float | None
    bits_per_character_se: float | None
    kl: float
    kl_se: float | None
    decided: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LensOfModel(JsonRecord):
    """A model's layers; `decided_layers`: by which 25, 50 and 75 % of tokens are decided."""

    model: str
    n_layers: int
    layers: tuple[LayerLens, ...]
    decided_layers: tuple[int, int, int]
    bits_per_token: float
    bits_per_character: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LensReport(LensOfModel):
    """The logit lens of a model, over one set of texts, with the tokens and characters that are
    predicted; no characters are counted without a tokenizer. `against`: as of `_beside`."""

    n_texts: int
    n_tokens: int
    n_characters: int | None
    against: Mapping[str, Any] | None


def lens_study(
    model: CausalModel,
    texts: Sequence[Text],
    *,
    against: CausalModel | None = None,
    batch_size: int = 16,
    max_tokens: int = 128,
    watched: Callable[[Iterator[TextBatch]], Iterable[TextBatch]] = iter,
) -> LensReport:
    """The predictions from each layer's state by the model's own final norm and head.

    Args:
        against: Another model with the same tokenizer, such as the base.
        watched: Is called with the batches and returns them, with a progress bar for example.

    Raises:
        StudyError: no token to predict, other tokens, or a head that the lens cannot read.
    """
    limit = max_tokens
    if against is not None:
        pair = (model.network, against.network)
        limit = min(max_tokens, *(n.window or max_tokens for n in pair))
        require_same_tokens(*pair, texts, limit)
    characters = predicted_characters(model, texts, limit)
    own, *others = (
        layer_predictions(one, texts, batch_size=batch_size, max_tokens=limit, watched=watched)
        for one in (model, against)
        if one is not None
    )
    lens = _lens_of(model, own, characters)
    beside = None
    if against is not None:
        (theirs,) = others
        beside = _beside(own, theirs, _lens_of(against, theirs, characters), characters)
    return LensReport(
        **{name: getattr(lens, name) for name in LensOfModel.__dataclass_fields__},
        n_texts=len(np.unique(own.text)),
        n_tokens=len(own.text),
        n_characters=None if characters is None else int(characters.sum()),
        against=beside,
    )


def _lens_of(model: CausalModel, own: LayerPredictions, characters: OfTexts | None) -> LensOfModel:
    decided = decided_from(own.top)
    shares = [float((decided <= layer).mean()) for layer in range(len(own.top))]
    layers = []
    for layer, (top, surprisal, kl) in enumerate(zip(own.top, own.surprisal, own.kl, strict=True)):
        measured = {
            "agreement": per_token(top == own.top[-1], own.text),
            "bits_per_token": per_token(surprisal, own.text),
            "bits_per_character": _per_character(surprisal, own.text, characters),
            "kl": per_token(kl, own.text),
        }
        values: dict[str, Any] = {}
        for name, found in measured.items():
            values[name] = getattr(found, "value", None)
            values[f"{name}_se"] = getattr(found, "standard_error", None)
        layers.append(LayerLens(layer=layer, decided=shares[layer], **values))
    low, middle, high = (int(np.searchsorted(shares, quartile)) for quartile in QUARTILES)
    return LensOfModel(
        model=model.network.name,
        n_layers=len(layers),
        layers=tuple(layers),
        decided_layers=(low, middle, high),
        bits_per_token=layers[-1].bits_per_token,
        bits_per_character=layers[-1].bits_per_character,
    )


def _beside(
    own: LayerPredictions, theirs: LayerPredictions, other: LensOfModel, characters: OfTexts | None
) -> dict[str, Any]:
    """A model beside another one on the same tokens: the differences are model − other.

    `same_top`: by layer, share of tokens for which both have the same top prediction; None where
    the numbers of layers differ, but for the last layer. `same_answer`: the same of the last
    layers. `bits_per_token`: of the last layers; `bits_per_character`: the same over the characters
    predicted. `decided_earlier`: mean of (other's deciding layer − model's), each as a share of its
    depth.
    """
    more = own.surprisal[-1].astype(np.float64) - theirs.surprisal[-1]
    mine, others = (decided_from(p.top) / max(1, len(p.top) - 1) for p in (own, theirs))
    alike = len(own.top) == len(theirs.top)
    return {
        "other": other,
        "same_top": (own.top == theirs.top).mean(axis=1).tolist() if alike else None,
        "same_answer": per_token(own.top[-1] == theirs.top[-1], own.text),
        "bits_per_token": per_token(more, own.text),
        "bits_per_character": _per_character(more, own.text, characters),
        "decided_earlier": per_token(others - mine, own.text),
    }


def _per_character(
    values: Float[np.ndarray, " tokens"], text: OfTokens, characters: OfTexts | None
) -> Estimate | None:
    if characters is None or not characters.sum():
        return None
    sums = np.bincount(text, weights=values.astype(np.float64), minlength=len(characters))
    return ratio(sums, characters)
