"""The CKA study: each layer of a network beside each layer of another one, as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Float64
from ..report_json import JsonRecord
from ..texts import Text
from .alignment import Alignment, align
from .cka import Cka
from .paired_states import Pair, paired_batches, sample_pairs
from .squared_norms import Form

if TYPE_CHECKING:
    from ..network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCka(JsonRecord):
    """A layer beside the layer of the other network at the same relative depth.

    Attributes:
        cka: Biased, 0…1; it is too high where tokens are not many more than dimensions.
        debiased: Its mean is 0 for unrelated layers; it may fall below 0.
        standard_error: Of `debiased`, from blocks of whole texts; None with few texts.
    """

    layer: int
    against_layer: int
    cka: float | None
    debiased: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CkaReport(JsonRecord):
    """The layers of one network beside those of another one; layer 0 is the embedding output.

    Attributes:
        n_tokens: Sampled tokens, which all numbers are of.
        n_tokens_seen: Tokens of all texts.
        n_blocks: Blocks of texts behind the standard errors.
        form: Whether products were computed from features or from pairs of tokens.
        matrix: Debiased CKA of each layer with each layer of the other; NaN of constant layers.
    """

    model: str
    against: str
    dim: int
    against_dim: int
    n_texts: int
    n_tokens: int
    n_tokens_seen: int
    n_blocks: int
    seed: int
    form: Form
    layers: tuple[LayerCka, ...]
    matrix: Float64[np.ndarray, "layers against_layers"]
    matrix_biased: Float64[np.ndarray, "layers against_layers"]
    matrix_standard_error: Float64[np.ndarray, "layers against_layers"]


def cka_study(
    network: Network,
    against: Network,
    texts: Sequence[Text],
    *,
    keep_tokens: int = Cka.keep_tokens,
    seed: int = 0,
    batch_size: int = 16,
    max_tokens: int = 128,
    watched: Callable[[Iterator[Pair]], Iterable[Pair]] = iter,
) -> CkaReport:
    """Linear CKA of all layers of two networks, over the same tokens.

    Widths and depths may differ, tokens may not. Special tokens and first positions are left out.
    Peak: the sampled tokens in all layers of both networks, three times.

    Args:
        keep_tokens: Tokens sampled at random.
        seed: Of the sample, and of the blocks of texts.
        watched: Is called with the batches and returns them, with a progress bar for example.

    Raises:
        StudyError: other tokens, too few of them, or values that are not finite.
    """
    batches = paired_batches(network, against, texts, batch_size=batch_size, max_tokens=max_tokens)
    names = (network.name, against.name)
    states = sample_pairs(watched(batches), keep=keep_tokens, seed=seed, names=names)
    alignment = align(states, seed=seed)
    return CkaReport(
        model=network.name,
        against=against.name,
        dim=states.first.shape[2],
        against_dim=states.second.shape[2],
        n_texts=len(np.unique(states.text)),
        n_tokens=len(states.text),
        n_tokens_seen=states.n_seen,
        n_blocks=alignment.n_blocks,
        seed=seed,
        form=alignment.form,
        layers=tuple(_by_depth(alignment)),
        matrix=alignment.debiased,
        matrix_biased=alignment.biased,
        matrix_standard_error=alignment.standard_error,
    )


def _by_depth(alignment: Alignment) -> Iterator[LayerCka]:
    """Each layer beside the other network's layer of the same relative depth."""
    layers, others = alignment.debiased.shape
    for layer in range(layers):
        other = round(layer * (others - 1) / max(1, layers - 1))
        cka, debiased, error = (
            None if np.isnan(matrix[layer, other]) else float(matrix[layer, other])
            for matrix in (alignment.biased, alignment.debiased, alignment.standard_error)
        )
        yield LayerCka(
            layer=layer, against_layer=other, cka=cka, debiased=debiased, standard_error=error
        )
