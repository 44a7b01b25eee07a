"""The CKA study: each layer of a network beside each layer of another one, as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, pairwise
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...arrays import Bool, Float32, Float64, Int64
from ...errors import StudyError
from ...results import JsonRecord, Row, agree, count
from ..geometry.group_states import Reservoir
from ..texts import Text

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates
    from ..network.model_loading import Network


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
            needed = sum(4 * prod(shape) for shape in shapes)
            if needed > MOST_BYTES:
                raise StudyError(
                    f"{keep} tokens in all layers of both models would need "
                    f"{needed / 2**30:.0f} GiB; "
                    f"give --keep-tokens {keep * MOST_BYTES // needed} or less"
                )
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


LONGEST_SIDE = 512
"""Rows of a tile of a kernel."""

MOST_BLOCKS = 20
FEWEST_BLOCKS = 5
"""With fewer texts there is no standard error."""

FEWEST_TOKENS = 10

LEAST_SPREAD = 1e-6
"""Of a layer's largest value; what varies less is rounding."""

States = Float32[np.ndarray, "layers rows dim"]
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
        raise StudyError(
            f"{count(n, 'token')} {agree(n, 'is')} too few; give texts of {FEWEST_TOKENS} tokens "
            "or more"
        )
    block_of = _blocks(states.text, seed)
    order = np.argsort(block_of, kind="stable")
    first, second = (_unit_rows(part[:, order]) for part in (states.first, states.second))
    products = KernelProducts.of(first, second, block_of[order])
    debiased = products.debiased(np.ones(len(products.block), dtype=bool))
    n_blocks = int(block_of.max()) + 1
    left_out = np.full((1, *debiased.shape), np.nan)
    if n_blocks >= FEWEST_BLOCKS:
        others = (products.block != block for block in range(n_blocks))
        left_out = np.stack([products.debiased(kept) for kept in others])
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    b = len(left_out)
    return Alignment(
        biased=products.biased(),
        debiased=debiased,
        standard_error=np.sqrt(spread * (b - 1) / b),
        n_blocks=n_blocks if n_blocks >= FEWEST_BLOCKS else 0,
    )


@dataclass(frozen=True, slots=True)
class KernelProducts:
    """What HSIC of layers X and Y needs of K = XXᵀ and L = YYᵀ without their diagonals, tile by
    tile: no matrix of rows × rows is held. Products are float32, of rows of length about 1; sums
    are float64. Each array is of (X, Y), of (X, X) and of (Y, Y), or of X and of Y.

    Attributes:
        block: The block of texts that each tile's rows are of.
        tiles: Σ K L over each pair of tiles.
        sums: Of each row, the sum of K over the columns of each tile.
        squares: The diagonal of K.
    """

    block: Int64[np.ndarray, " tiles"]
    rows: tuple[slice, ...]
    tiles: tuple[Float64[np.ndarray, "tiles tiles *_"], ...]
    sums: tuple[Float64[np.ndarray, "_ rows tiles"], ...]
    squares: tuple[Float64[np.ndarray, "_ rows"], ...]

    @classmethod
    def of(
        cls,
        first: States,
        second: Float32[np.ndarray, "others rows width"],
        block: Int64[np.ndarray, " rows"],
    ) -> KernelProducts:
        """Rows are in the order of their blocks. Peak: layers · 512² float32."""
        edges = np.searchsorted(block, range(int(block.max()) + 2)).tolist()
        rows = tuple(
            slice(start, min(start + LONGEST_SIDE, stop))
            for begin, stop in pairwise(edges)
            for start in range(begin, stop, LONGEST_SIDE)
        )
        n, pair = len(rows), (first, second)
        shapes = ((len(first), len(second)), (len(first),), (len(second),))
        tiles = tuple(np.zeros((n, n, *shape)) for shape in shapes)
        sums = tuple(np.zeros((*x.shape[:2], n)) for x in pair)
        for g, h in combinations_with_replacement(range(n), 2):
            kernels = [x[:, rows[g]] @ x[:, rows[h]].transpose(0, 2, 1) for x in pair]
            for own, kernel in zip(sums, kernels, strict=True):
                if g == h:
                    kernel[:, range(kernel.shape[1]), range(kernel.shape[1])] = 0.0
                own[:, rows[g], h] = kernel.sum(axis=2, dtype=np.float64)
                own[:, rows[h], g] = kernel.sum(axis=1, dtype=np.float64)
            k, m = (kernel.reshape(len(kernel), -1) for kernel in kernels)
            for total, value in zip(
                tiles,
                (k @ m.T, np.einsum("lk,lk->l", k, k), np.einsum("lk,lk->l", m, m)),
                strict=True,
            ):
                total[g, h] = total[h, g] = value
        squares = tuple(np.einsum("lnd,lnd->ln", x, x, dtype=np.float64) for x in pair)
        return cls(block[[r.start for r in rows]], rows, tiles, sums, squares)

    def biased(self) -> Matrix:
        """Of all rows, which are centred."""
        x, y = self.squares
        cross, of_x, of_y = (total.sum(axis=(0, 1)) for total in self.tiles)
        return _ratio(cross + x @ y.T, of_x + (x**2).sum(axis=1), of_y + (y**2).sum(axis=1))

    def debiased(self, kept: Bool[np.ndarray, " tiles"]) -> Matrix:
        """n(n − 3) HSIC₁ = Σ KL + ΣK ΣL / ((n − 1)(n − 2)) − 2/(n − 2) Σᵢ (Σⱼ Kᵢⱼ)(Σⱼ Lᵢⱼ), over
        the rows of some tiles."""
        cross, of_x, of_y = (total[kept][:, kept].sum(axis=(0, 1)) for total in self.tiles)
        of_rows = np.concatenate(
            [np.arange(r.start, r.stop) for r, own in zip(self.rows, kept, strict=True) if own]
        )
        n = len(of_rows)
        x, y = (own[:, of_rows][:, :, kept].sum(axis=2) for own in self.sums)
        far, near = (n - 1) * (n - 2), 2 / (n - 2)
        total_x, total_y = x.sum(axis=1), y.sum(axis=1)
        return _ratio(
            cross + np.outer(total_x, total_y) / far - near * (x @ y.T),
            of_x + total_x**2 / far - near * (x**2).sum(axis=1),
            of_y + total_y**2 / far - near * (y**2).sum(axis=1),
        )


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
class CkaReport(JsonRecord):
    """The layers of one network beside those of another one; layer 0 is the embedding output.

    Attributes:
        n_tokens: Sampled tokens, which all numbers are of.
        n_tokens_seen: Tokens of all texts.
        n_blocks: Blocks of texts behind the standard errors.
        form: How products were computed: from pairs of tokens.
        layers: Each beside the layer of the other network at the same relative depth: `cka`,
            biased, 0…1, is too high where tokens are not many more than dimensions; the mean of
            `debiased` is 0 for unrelated layers, and it may fall below 0; `standard_error` is its,
            from blocks of whole texts, None with few texts.
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
    layers: tuple[Row, ...]
    matrix: Float64[np.ndarray, "layers against_layers"]
    matrix_biased: Float64[np.ndarray, "layers against_layers"]
    matrix_standard_error: Float64[np.ndarray, "layers against_layers"]


def cka_study(
    network: Network,
    against: Network,
    texts: Sequence[Text],
    *,
    keep_tokens: int,
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


def _by_depth(alignment: Alignment) -> Iterator[Row]:
    layers, others = alignment.debiased.shape
    for layer in range(layers):
        other = round(layer * (others - 1) / max(1, layers - 1))
        yield {
            "layer": layer,
            "against_layer": other,
            "cka": float(alignment.biased[layer, other]),
            "debiased": float(alignment.debiased[layer, other]),
            "standard_error": float(alignment.standard_error[layer, other]),
        }
