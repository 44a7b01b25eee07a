"""The CKA study: each layer of a network beside each layer of another one, as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...arrays import Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord
from ..geometry.group_states import Reservoir
from ..texts import Text
from .cka import Cka

if TYPE_CHECKING:
    from ..network import Network, TokenStates


MOST_BYTES = 8 * 2**30
"""Memory that the sampled states may take; more is refused before it is taken."""

Pair = tuple["TokenStates", "TokenStates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedStates:
    """Sampled tokens in every layer of two networks.

    Attributes:
        n_seen: Tokens that the sample was drawn from.
    """

    first: Float32[np.ndarray, "first_layers tokens first_dim"] = field(repr=False)
    second: Float32[np.ndarray, "second_layers tokens second_dim"] = field(repr=False)
    text: Int64[np.ndarray, " tokens"] = field(repr=False)
    n_seen: int


def paired_batches(
    network: Network, against: Network, texts: Sequence[Text], *, batch_size: int, max_tokens: int
) -> Iterator[Pair]:
    """The states of both networks, batch by batch, over the tokens that both read."""
    from ..network.hidden_states import require_same_tokens, token_states

    tokenizer = network.tokenizer or against.tokenizer
    first, second = (replace(n, tokenizer=n.tokenizer or tokenizer) for n in (network, against))
    pair = (first, second)
    limit = min(max_tokens, *(n.window or max_tokens for n in pair))
    require_same_tokens(first, second, texts, limit)
    states = (token_states(n, texts, batch_size=batch_size, max_tokens=limit) for n in pair)
    yield from zip(*states, strict=True)


def sample_pairs(
    batches: Iterable[Pair],
    *,
    keep: int,
    seed: int,
    names: tuple[str, str] = ("the first model", "the second model"),
) -> PairedStates:
    """At most `keep` tokens, drawn at random; each is in all layers of both networks.

    Peak: layers · keep · dim float32 of both.
    """
    samples: list[Reservoir] = []
    for pair in batches:
        if not samples:
            shapes = [(len(states.hidden), keep, states.hidden.shape[2]) for states in pair]
            _require_memory(shapes)
            samples = [Reservoir(*shape, seed) for shape in shapes]
        for sample, states in zip(samples, pair, strict=True):
            sample.update(states.hidden, pair[0].text)  # of one seed: both choose the same tokens
    if not samples or not samples[0].seen:
        raise StudyError("the texts leave no token to study; give longer texts")
    first, second = (sample.hidden() for sample in samples)
    for name, hidden in zip(names, (first, second), strict=True):
        if not np.isfinite(hidden).all():
            raise StudyError(f"{name}: its states hold NaN or infinity; check its weights")
    text, n_seen = samples[0].texts(), samples[0].seen
    return PairedStates(first=first, second=second, text=text, n_seen=n_seen)


def _require_memory(shapes: Sequence[tuple[int, int, int]]) -> None:
    needed = sum(4 * prod(shape) for shape in shapes)
    if needed > MOST_BYTES:
        keep = shapes[0][1]
        raise StudyError(
            f"{keep} tokens in all layers of both models would need {needed / 2**30:.0f} GiB; "
            f"give --keep-tokens {keep * MOST_BYTES // needed} or less"
        )


LONGEST_SIDE = 512
"""Rows of a tile of a kernel."""

First = Float32[np.ndarray, "layers rows dim"]
Second = Float32[np.ndarray, "others rows width"]


SquaredNorms = tuple[
    Float64[np.ndarray, "subsets first_layers second_layers"],
    Float64[np.ndarray, "subsets first_layers"],
    Float64[np.ndarray, "subsets second_layers"],
]
"""|XᵀY|²_F of layers over rows, |XᵀX|²_F and |YᵀY|²_F; first index: 0 of all rows, then without
each block.

They are Σᵢⱼ (XXᵀ)ᵢⱼ (YYᵀ)ᵢⱼ, from tiles of the kernels: no matrix of rows × rows is held. Products
are float32, of rows of length about 1; sums are float64.
"""


def squared_norms(first: First, second: Second, blocks: Sequence[slice]) -> SquaredNorms:
    """All layers at once. Peak: layers · 512² float32."""
    n = len(blocks)
    cross = np.zeros((n, n, len(first), len(second)))
    own = [np.zeros((n, n, len(first))), np.zeros((n, n, len(second)))]
    for g, one in enumerate(blocks):
        for h, other in enumerate(blocks[: g + 1]):
            for rows, columns, twice in _tiles(one, other):
                tiles = [
                    (states[:, rows] @ states[:, columns].transpose(0, 2, 1)).reshape(
                        len(states), -1
                    )
                    for states in (first, second)
                ]
                cross[g, h] += twice * (tiles[0] @ tiles[1].T).astype(np.float64)
                for sums, tile in zip(own, tiles, strict=True):
                    sums[g, h] += twice * np.einsum("lk,lk->l", tile, tile)
    return _subsets(cross), _subsets(own[0]), _subsets(own[1])


def _tiles(one: slice, other: slice) -> Iterator[tuple[slice, slice, int]]:
    """(rows, columns, how often it counts): tiles of two blocks, or of half of one block."""
    for rows in _cut(one):
        for columns in _cut(other):
            if one == other and columns.start > rows.start:
                continue
            yield rows, columns, 2 if one == other and columns.start < rows.start else 1


def _cut(block: slice) -> list[slice]:
    starts = range(block.start, block.stop, LONGEST_SIDE)
    return [slice(start, min(start + LONGEST_SIDE, block.stop)) for start in starts]


def _subsets(
    sums: Float64[np.ndarray, "blocks blocks *sizes"],
) -> Float64[np.ndarray, " subsets *sizes"]:
    """From sums over pairs of blocks g ≥ h: over all pairs, and over those without each block."""
    diagonal = np.stack([sums[g, g] for g in range(len(sums))])
    below = sums.copy()
    for g in range(len(sums)):
        below[g, g] = 0
    total = 2 * below.sum(axis=(0, 1)) + diagonal.sum(axis=0)
    touching = 2 * (below.sum(axis=0) + below.sum(axis=1)) + diagonal
    return np.concatenate([total[None], total - touching])


MOST_BLOCKS = 20
FEWEST_BLOCKS = 5
"""With fewer texts there is no standard error."""

FEWEST_TOKENS = 10

LEAST_SPREAD = 1e-6
"""Of a layer's largest value; what varies less is rounding."""

States = Float32[np.ndarray, "layers rows dim"]
Squares = Float64[np.ndarray, "layers rows"]
Matrix = Float64[np.ndarray, "first_layers second_layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """CKA of each layer of the first network with each of the second; NaN of constant layers.

    The standard error is the debiased form's, from blocks of whole texts that are left out in turn.
    """

    biased: Matrix
    debiased: Matrix
    standard_error: Matrix
    n_blocks: int


def align(states: PairedStates, *, seed: int) -> Alignment:
    """CKA from the sampled tokens.

    Kornblith et al. 2019 (arXiv 1905.00414), eqs. 2 to 5: HSIC(X, Y) / √(HSIC(X, X) HSIC(Y, Y)).
    The biased form has HSIC = |XᵀY|²_F of centred rows; it is near 1 for any two matrices of more
    columns than rows. The debiased form has the unbiased HSIC of Song et al. 2012, eq. 5 (used for
    CKA by Nguyen et al. 2021, eq. 3), whose mean is 0 for unrelated matrices.
    The standard error is that of a jackknife over blocks of whole texts (Efron & Stein 1981),
    since tokens of one text are not independent.
    """
    n = len(states.text)
    if n < FEWEST_TOKENS:
        raise StudyError(f"{n} tokens are too few; give texts of {FEWEST_TOKENS} tokens or more")
    block_of = _blocks(states.text, seed)
    order = np.argsort(block_of, kind="stable")
    edges = np.searchsorted(block_of[order], range(int(block_of.max()) + 2)).tolist()
    blocks = [slice(a, b) for a, b in pairwise(edges)]
    first, second = (_unit_rows(part[:, order]) for part in (states.first, states.second))
    norms = squared_norms(first, second, blocks)
    subsets = [None, *(blocks if len(blocks) >= FEWEST_BLOCKS else ())]
    squares = [np.einsum("lnd,lnd->ln", x, x, dtype=np.float64) for x in (first, second)]
    forms = []
    for subset, left_out in enumerate(subsets):
        x = _Rows.of(first, squares[0], left_out)
        y = _Rows.of(second, squares[1], left_out)
        forms.append(_cka(x, y, *(part[subset] for part in norms)))
    biased, debiased = forms[0]
    left_out = np.stack([value for _, value in forms[1:]] or [np.full(debiased.shape, np.nan)])
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    b = len(left_out)
    return Alignment(
        biased=biased,
        debiased=debiased,
        standard_error=np.sqrt(spread * (b - 1) / b),
        n_blocks=len(subsets) - 1,
    )


def _cka(
    x: _Rows, y: _Rows, cross: Matrix, of_x: np.ndarray, of_y: np.ndarray
) -> tuple[Matrix, Matrix]:
    n = x.squares.shape[1]
    cross = cross - _mean_term(x, y, n)
    of_x = of_x - np.diagonal(_mean_term(x, x, n))
    of_y = of_y - np.diagonal(_mean_term(y, y, n))
    debiased = _ratio(
        cross + _correction(x.squares @ y.squares.T, np.outer(x.total, y.total), n),
        of_x + _correction((x.squares**2).sum(axis=1), x.total**2, n),
        of_y + _correction((y.squares**2).sum(axis=1), y.total**2, n),
    )
    return _ratio(cross, of_x, of_y), debiased


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows without a block, whose own mean is not 0: what their centring needs, by layer.

    Attributes:
        along: Of each row, its product with the sum of the rows that are left.
        shift: |that sum|².
        squares: |row − mean|² of each row.
    """

    along: Squares
    shift: Float64[np.ndarray, " layers"]
    squares: Squares

    @classmethod
    def of(cls, states: States, squares: Squares, left_out: slice | None) -> _Rows:
        if left_out is None:  # centred already
            return cls(np.zeros_like(squares), np.zeros(len(states)), squares)
        total = -states[:, left_out].sum(axis=1, dtype=np.float64)  # all rows add up to 0
        products = np.matmul(states, total.astype(np.float32)[:, :, None])[:, :, 0]
        rows = np.ones(squares.shape[1], dtype=bool)
        rows[left_out] = False
        along = products[:, rows].astype(np.float64)
        n = along.shape[1]
        shift = (total**2).sum(axis=1)
        return cls(along, shift, squares[:, rows] - 2 * along / n + (shift / n**2)[:, None])

    @property
    def total(self) -> np.ndarray:
        total: np.ndarray = self.squares.sum(axis=1)
        return total


def _mean_term(x: _Rows, y: _Rows, n: int) -> Matrix:
    """What |XᵀY|² loses by centring: with sums s and t, 2 sᵀXᵀYt / n − |s|²|t|² / n²."""
    lost: Matrix = 2 * (x.along @ y.along.T) / n - np.outer(x.shift, y.shift) / n**2
    return lost


def _correction(products: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """n(n − 3) HSIC₁ − |XᵀY|², by Σ |x|²|y|² over rows and Σ|x|² Σ|y|²."""
    return -products * n / (n - 2) + squares / ((n - 1) * (n - 2))


def _ratio(cross: Matrix, of_x: np.ndarray, of_y: np.ndarray) -> Matrix:
    """cross / √(of_x of_y); NaN where a layer has no variance."""
    x, y = (np.where(values > 0, values, np.nan) for values in (of_x, of_y))
    cka: Matrix = cross / np.sqrt(np.outer(x, y))
    return cka


def _unit_rows(states: States) -> States:
    """Centred rows, divided by their root mean square length; rows of zeros where they are equal.

    CKA does not depend on the scale, float32 sums of fourth powers do.
    """
    unit = np.empty(states.shape, dtype=np.float32)
    for rows, into in zip(states, unit, strict=True):
        centred = rows - rows.mean(axis=0, dtype=np.float64)
        size = float(np.sqrt((centred**2).sum() / len(rows)))
        varies = size > LEAST_SPREAD * float(np.abs(rows).max())
        into[:] = centred / size if varies else 0.0
    return unit


def _blocks(text: Int64[np.ndarray, " tokens"], seed: int) -> Int64[np.ndarray, " tokens"]:
    """The block of each token: whole texts in random order, cut where tokens are about equal."""
    numbers, place, counts = np.unique(text, return_inverse=True, return_counts=True)
    n_blocks = min(MOST_BLOCKS, len(numbers))
    order = np.random.default_rng(seed).permutation(len(numbers))
    middle = np.cumsum(counts[order]) - counts[order] / 2
    of_text = np.empty(len(numbers), dtype=np.int64)
    of_text[order] = np.minimum((middle * n_blocks / len(text)).astype(np.int64), n_blocks - 1)
    _, dense = np.unique(of_text, return_inverse=True)  # a long text may leave a block empty
    return dense.astype(np.int64)[place]


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
        form: How products were computed: from pairs of tokens.
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
    form: Literal["tokens"] = "tokens"
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
        layers=tuple(_by_depth(alignment)),
        matrix=alignment.debiased,
        matrix_biased=alignment.biased,
        matrix_standard_error=alignment.standard_error,
    )


def _by_depth(alignment: Alignment) -> Iterator[LayerCka]:
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
