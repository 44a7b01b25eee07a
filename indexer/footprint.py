"""Which tokens of its base's vocabulary a model was trained on: rows of the input embedding that
moved, of full checkpoints and of what adapters store of embeddings.

A token that never occurs in training has no gradient, so its row stays equal, or shrinks by one
factor that all such rows share (decoupled weight decay: Loshchilov, Hutter 2019). Where the matrix
is a language head too, the softmax pushes every row, and those of unseen tokens all one way; a
token that is seen is pulled back, so that it moved less far, and another way.

The constants are measured: `python -m benchmarks.words`, docs/words.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import numpy as np
import torch

from ..arrays import Bool, Float32, Float64, UInt8
from ..errors import BaseError, ModelError
from ..records import Footprint
from ..results import count
from .adapter import parse_name
from .base import BaseWeights, find_embedding
from .checkpoint import DTYPES, Checkpoint, Config, RowBlock, TensorRef
from .family import Member
from .job import FOR_CONTENT, IndexJob
from .tokenizer import difference

LEAST_STILL = 0.02
"""Share of the rows that must be untouched for them to be told from the others."""

STILL = 1e-5
"""|ΔE + cE| / |E| up to which a row of float32 is only rounded: thousands of steps of decay, each
rounding once."""

SPREAD = 30.0
"""How many times as far as the stillest rows others may seem to move, and be untouched."""

BEYOND_NOISE = 10.0
LEAST_MOVE, LEAST_OF_ROUNDED = 1e-6, 5e-6
"""|ΔE + cE| / |E| above which a row is touched: the larger of a multiple of the untouched rows'
median, and what float32 leaves of a decay, or of rounding."""

AS_ZERO = 1e-30
"""Rows of smaller numbers count as zeros: near the end of float32 a decay is lost in rounding."""

HALF_STEP = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Half the distance of two neighbouring numbers, as a share of the power of two below them."""

LEAST_HALF_STEP = {torch.bfloat16: 0.0, torch.float16: 2.0**-25}

SLACK, SLACK_OF_DECAY = 2e-6, 0.05
"""Of an entry, and of c: what the roundings of float32 add to that of a narrower type. A decay is
rounded in every step, by a bias that differs from number to number."""

PUSHED = 0.97
"""Cosine with the common push that a quarter of the rows exceeds where there is one: .98 and more
of tied heads, up to .96 where Adam's gradient holds the decay."""

UNRELATED = 0.7
"""That cosine up to which rows that moved, of a head that is said to be tied, were seen where
others stand still in float32: a config may be the base's."""

MOST_SAMPLED, MOST_TURNS, CLOSE = 1 << 12, 64, 1e-7
"""Rows of which the decay and the push are found, in how many turns, and the decay's last step."""

FIRST_TURNS, FAR_FROM_PUSHED = 3, 0.8
"""Turns after which there is no push, where a quarter of the rows exceeds no larger cosine."""

EQUALLY_FAR, SHORT = 0.8, 0.6
"""Lower by upper quartile of the lengths of pushed rows, .93 and more by Adam and its like, up to
.5 by SGD; and how long a seen row's move is at most, beside the upper one, of the former."""

FEWEST_SURE = 10
"""Of a tied head; a token that was expected in one place alone is pushed another way too."""

BEYOND_ROUNDING = 0.5
"""Of a seen row's move, the share that the rounding of its type does not explain."""

SURE = 1.2
"""`apart` from which a token was seen: 99.9 % of 14 models' tokens above it were."""

QUARTERS = 4
LEAST_OCTAVE = -30
"""Strengths are 4 (log₂ of the move + 30); of tied rows 100 times how far apart they are."""

APART = 100.0

MOST_BLOCK = 1 << 18
"""Entries of a block: they stay in the processor's cache, in float64 too."""


@dataclass(frozen=True, eq=False)
class RowPair:
    """A block of an embedding's rows: the base's and the fine-tune's, (rows, width), as they are
    stored."""

    base: torch.Tensor
    rows: torch.Tensor

    @cached_property
    def sizes(self) -> torch.Tensor:
        """The largest |number| of each of the base's rows."""
        return largest(self.base)

    @property
    def are_there(self) -> torch.Tensor:
        """Which of the base's rows are more than zeros."""
        return self.sizes > AS_ZERO

    @cached_property
    def are_equal(self) -> torch.Tensor:
        """Which rows are the base's; of NaN none."""
        return self._are_equal(torch.promote_types(self.base.dtype, self.rows.dtype))

    def are_equal_as(self, stored: torch.dtype) -> torch.Tensor:
        """Which rows are the base's, rounded to a type."""
        is_so = self.base.dtype is self.rows.dtype is stored
        return self.are_equal if is_so else self._are_equal(stored)

    def _are_equal(self, dtype: torch.dtype) -> torch.Tensor:
        # a difference of two unequal numbers of one type is never rounded to 0
        return largest(self.rows.to(dtype) - self.base.to(dtype)) == 0

    def take(self, chosen: Bool[np.ndarray, " rows"]) -> RowPair:
        # not by NumPy's mask, which torch follows a number at a time
        places = torch.from_numpy(np.flatnonzero(chosen))
        if len(places) == len(self.rows):
            return self
        return RowPair(self.base.index_select(0, places), self.rows.index_select(0, places))


RowPairs = Sequence[RowPair]
"""Blocks of rows, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class RowMoves:
    """How the rows of an embedding moved.

    Attributes:
        kind: `exact`: rows that never occurred stand still. `tied`: all moved, those that never
            occurred one way. `frozen`: none moved. `dense`: all moved, each its own way.
        rows: The numbers of the rows that training touched, rising; of tied rows the sure ones.
        moves: Of each, |ΔE + cE| / |E| beyond what storing it explains; of tied rows `apart`, the
            sum of 1 − cosine and 1 − length, both against the push on unseen rows: 0 of a row
            that is pushed like them.
    """

    kind: Literal["exact", "tied", "frozen", "dense"]
    rows: np.ndarray
    moves: Float32[np.ndarray, " rows"]


def strengths_of(moves: RowMoves) -> UInt8[np.ndarray, " rows"]:
    """A byte for each touched row: four steps an octave, or hundredths of how far apart it is."""
    if moves.kind == "tied":
        scaled = APART * moves.moves
    else:
        scaled = QUARTERS * (np.log2(np.maximum(moves.moves, 2.0**LEAST_OCTAVE)) - LEAST_OCTAVE)
    return np.clip(np.round(scaled), 0, 255).astype(np.uint8)


def measure_rows(blocks: RowPairs, *, is_tied: bool = False) -> RowMoves:
    """Which rows of a fine-tune's embedding moved, beside the base's; `is_tied`: it is known to be
    a language head too, so that a row which moved need not be of a token that was seen.

    Peak: a few blocks in float64, and of tied rows `MOST_SAMPLED` twice in float32.
    """
    stored = _stored_type(blocks)
    there = torch.cat([pair.are_there for pair in blocks]).numpy()
    equal = torch.cat([pair.are_equal_as(stored) for pair in blocks]).numpy()
    grown = np.flatnonzero(_over(blocks, lambda pair: largest(pair.rows) > AS_ZERO, there))
    if equal[there].all():
        return _exact(grown, np.ones(len(grown)))
    is_exact = stored not in HALF_STEP and (equal & there).sum() >= LEAST_STILL * there.sum()
    decay = 0.0 if is_exact else _common_decay(blocks, there, stored)
    moved = _over(blocks, partial(_moved, decay=decay, stored=stored), equal)
    still = float(np.quantile(moved[there], LEAST_STILL))
    if still > STILL:
        shares, _ = _along_and_aside(blocks)
        usual = max(0.0, float(np.median(shares[there])))
        return _pushed(blocks, there, usual, stored)[0]
    near = np.median(moved[there & (moved <= SPREAD * still)])
    least = 0.0 if is_exact else LEAST_OF_ROUNDED if stored in HALF_STEP else LEAST_MOVE
    is_touched = moved > max(BEYOND_NOISE * near, least)
    if (is_tied and is_touched.any()) or is_touched.sum() > 0.5 * there.sum():
        # of a tied head whose softmax is zero for some tokens, rows of these stand still
        pushed, alike = _pushed(blocks, is_touched, decay, stored)
        if pushed.kind == "tied" or (is_tied and (stored in HALF_STEP or alike > UNRELATED)):
            return pushed
    # neither a decay nor rounding moves zeros; what is more now moved by all of its length
    is_touched[~there], is_touched[grown], moved[grown] = False, True, 1.0
    touched = np.flatnonzero(is_touched)
    return _exact(touched, moved[touched])


def measure_few_rows(base: torch.Tensor, rows: torch.Tensor) -> RowMoves:
    """The same of rows that are too few to show what untouched ones do: touched are those that
    turned, since a decay alone keeps a row's direction."""
    pair = RowPair(base, rows)
    stored = _stored_type([pair])
    _, turned = _along_and_aside([pair])
    there, grown = pair.are_there.numpy(), (largest(rows) > AS_ZERO).numpy()
    turned[~there] = grown[~there]
    is_equal = pair.are_equal_as(stored).numpy()
    touched = np.flatnonzero(~is_equal & (turned > HALF_STEP.get(stored, STILL)))
    return _exact(touched, turned[touched])


def _exact(touched: np.ndarray, moves: np.ndarray) -> RowMoves:
    return _moves("exact" if len(touched) else "frozen", touched, moves)


def _moves(kind: str, rows: np.ndarray, moves: np.ndarray) -> RowMoves:
    finite = np.minimum(moves, np.finfo(np.float32).max).astype(np.float32)
    return RowMoves(kind, rows.astype(np.int64), finite)  # type: ignore[arg-type]


DENSE = _moves("dense", np.zeros(0, np.int64), np.zeros(0))


def _stored_type(blocks: RowPairs) -> torch.dtype:
    """The narrowest type that holds the fine-tune's numbers: a file of float32 may have been
    trained in another."""
    dtype = blocks[0].rows.dtype
    if dtype is not torch.float32:
        return dtype
    for narrow in HALF_STEP:
        if all(torch.equal(pair.rows.to(narrow).float(), pair.rows) for pair in blocks):
            return narrow
    return dtype


def largest(rows: torch.Tensor) -> torch.Tensor:
    """The largest |number| of each row; NaN where a row holds that. Several times as fast as a sum
    in float64, or as a comparison with 0."""
    return rows.abs().amax(dim=1)


def _common_decay(blocks: RowPairs, there: Bool[np.ndarray, " rows"], stored: torch.dtype) -> float:
    """c, of the rows that moved along themselves alone."""
    if stored in HALF_STEP:
        bounds = _bounds_of_rounded(blocks, stored)
        return _common_of(*bounds, _slack(_common_of(*bounds, SLACK)))
    shares, aside = _along_and_aside(blocks)
    known = there & np.isfinite(aside)
    still = known & (aside <= SPREAD * np.quantile(aside[known], LEAST_STILL))
    return float(np.median(shares[still]))


def _along_and_aside(blocks: RowPairs) -> tuple[np.ndarray, np.ndarray]:
    """Of each row, how much it shrank, and how far it moved aside of itself, both beside |E|."""
    along, aside = [], []
    for pair in blocks:
        start, delta = pair.base.double(), pair.rows.double() - pair.base.double()
        length = start.square().sum(dim=1)
        share = -(delta * start).sum(dim=1) / length
        along.append(share.numpy())
        aside.append((delta.square().sum(dim=1) / length - share.square()).clamp_min(0).sqrt())
    return np.concatenate(along), torch.cat(aside).numpy()


def _slack(decay: float) -> float:
    return SLACK + SLACK_OF_DECAY * abs(decay)


def _bounds_of_rounded(blocks: RowPairs, stored: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Where rounding hides the decay in most numbers: each number of a row allows an interval of
    1 − c; the highest beginning and the lowest end of each row's."""
    lows, highs = [], []
    for pair in blocks:
        start, now = pair.base.double(), pair.rows.double()
        half = _half_steps(pair.rows.float(), stored).double() / start.abs()
        ratio = now / start
        lows.append((ratio - half).nan_to_num_(nan=-torch.inf).amax(dim=1))
        highs.append((ratio + half).nan_to_num_(nan=torch.inf).amin(dim=1))
    return torch.cat(lows), torch.cat(highs)


def _common_of(lows: torch.Tensor, highs: torch.Tensor, slack: float) -> float:
    """c: the intervals of an untouched row have some 1 − c in common, and the true one lies in that
    of every such row."""
    low, high = lows - slack, highs + slack
    is_still = (low <= high) & low.isfinite()
    if not bool(is_still.any()):
        return 0.0
    ends = high[is_still].sort().values.numpy()
    starts = low[is_still].sort().values.numpy()
    held = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts)
    best = starts[int(held.argmax())]
    kept = float(best + ends[np.searchsorted(ends, best)]) / 2
    return max(0.0, 1 - kept)


def _half_steps(values: torch.Tensor, stored: torch.dtype) -> torch.Tensor:
    power = (values.view(torch.int32) & 0x7F800000).view(torch.float32)
    return (power * HALF_STEP[stored]).clamp_min(LEAST_HALF_STEP[stored])


def _over(
    blocks: RowPairs,
    measure: Callable[[RowPair], torch.Tensor],
    left_out: Bool[np.ndarray, " rows"],
) -> Float64[np.ndarray, " rows"]:
    """A measure of every row; 0 of those that are left out."""
    values, first = np.zeros(len(left_out)), 0
    for pair in blocks:
        chosen = ~left_out[first : first + len(pair.rows)]
        if chosen.any():
            values[first : first + len(chosen)][chosen] = measure(pair.take(chosen)).numpy()
        first += len(pair.rows)
    return values


def _moved(pair: RowPair, decay: float, stored: torch.dtype) -> torch.Tensor:
    wanted = pair.base.float() * (1 - decay)
    beyond = (pair.rows.float() - wanted).abs()
    if stored in HALF_STEP:
        beyond = (beyond - _half_steps(wanted, stored) - _slack(decay) * wanted.abs()).clamp_min(0)
    # in float64: the square of a small or a large number is none in float32
    far, long = (
        torch.linalg.vector_norm(x, dim=1, dtype=torch.float64) for x in (beyond, pair.base)
    )
    share: torch.Tensor = far / long
    return share.nan_to_num_(posinf=0.0)


def _pushed(
    blocks: RowPairs, there: Bool[np.ndarray, " rows"], decay: float, stored: torch.dtype
) -> tuple[RowMoves, float]:
    """Of some rows, those that do not move as unseen ones do, where those all move one way; and the
    cosine with that way which a quarter of the rows exceeds.

    Adam moves all unseen rows equally far, and a seen one less. Of SGD a row's push is as long as
    its token is likely, so that a short one may be rounding alone.
    """
    decay, push = _decay_and_push(blocks, there, decay)
    cosines, lengths = [], []
    for pair in blocks:
        moves = pair.rows.float() - pair.base.float() * (1 - decay)
        lengths.append(moves.norm(dim=1))
        cosines.append((moves @ push / lengths[-1]).nan_to_num())
    cosine, length = torch.cat(cosines).numpy(), torch.cat(lengths).numpy()
    alike = float(np.quantile(cosine[there], 0.75))
    if alike < PUSHED:
        return DENSE, alike
    short, usual = np.quantile(length[there & (cosine >= PUSHED)], (0.25, 0.75))
    share = length / np.quantile(length[there], 0.75)
    apart = 2 - cosine - share
    is_told = share < SHORT
    if short < EQUALLY_FAR * usual:
        beyond, whole = (
            _over(blocks, partial(_moved, decay=decay, stored=dtype), ~there)
            for dtype in (stored, torch.float32)
        )
        is_told = beyond > BEYOND_ROUNDING * whole
    sure = np.flatnonzero(there & (apart > SURE) & is_told)
    is_enough = len(sure) >= FEWEST_SURE
    return (_moves("tied", sure, apart[sure]) if is_enough else DENSE), alike


def _decay_and_push(
    blocks: RowPairs, there: Bool[np.ndarray, " rows"], decay: float
) -> tuple[float, torch.Tensor]:
    """c, and the direction in which unseen rows are pushed, of length 1.

    Both are found in turn from a first c: a push along E looks like decay, and what is left of a
    decay like a direction of its own.
    """
    step, starts, moved, first = -(-int(there.sum()) // MOST_SAMPLED), [], [], 0
    for pair in blocks:
        some = np.flatnonzero(there[first : first + len(pair.rows)])[::step]
        starts.append(pair.base[some].float())
        moved.append(pair.rows[some].float() - starts[-1])
        first += len(pair.rows)
    start, moves = torch.cat(starts), torch.cat(moved)
    squares, against = start.square().sum(dim=1), (moves * start).sum(dim=1)
    for turn in range(MOST_TURNS):
        push = (moves + decay * start).median(dim=0).values
        push /= push.norm().clamp_min(AS_ZERO)
        # of ΔE = −cE + a push, by least squares in each row
        along = start @ push
        shares = (along * (moves @ push) - against) / (squares - along.square())
        before, decay = decay, float(shares.nan_to_num(posinf=0.0, neginf=0.0).median())
        is_dense = turn == FIRST_TURNS and _alike(moves + decay * start, push) < FAR_FROM_PUSHED
        if is_dense or abs(decay - before) < CLOSE:
            break
    return decay, push


def _alike(moves: torch.Tensor, push: torch.Tensor) -> float:
    """The cosine with the push that a quarter of some moves exceeds."""
    return float(np.quantile((moves @ push / moves.norm(dim=1)).nan_to_num().numpy(), 0.75))


BLOCK_AT = 0.25
"""Where in the vocabulary the block of rows begins that a byte budget reads: behind the words that
every text has."""


def read_footprint(member: Member, checkpoint: Checkpoint, job: IndexJob) -> Footprint:
    """A model's footprint; of kind `none` with the reason where its embedding cannot be read.

    Peak: a full checkpoint's embedding and the base's, mapped or held.
    """
    try:
        if member.is_adapter:
            return _of_adapter(member, checkpoint, job)
        ref = find_embedding(checkpoint.tensors, member.config)
        if ref is None:
            return _none("no tensor is known as its input embedding")
        return _compared(member, checkpoint, ref, job)
    except BaseError as err:
        return _none(f"the base's embedding cannot be read: {err}")
    except ModelError as err:
        return _none(err.reason)


def _none(note: str | None, kind: Literal["none", "frozen"] = "none") -> Footprint:
    tokens, strengths = np.zeros(0, np.uint32), np.zeros(0, np.uint8)
    return Footprint(kind=kind, tokens=tokens, strengths=strengths, note=note)


def _compared(member: Member, checkpoint: Checkpoint, ref: TensorRef, job: IndexJob) -> Footprint:
    base = job.base.weights()
    base_ref = _base_embedding(base)
    if ref.dtype not in DTYPES or not DTYPES[ref.dtype].is_floating_point:
        return _none(f"its input embedding is stored as {ref.dtype}")
    if ref.shape[1] != base_ref.shape[1]:
        return _none(f"its input embedding is {ref.shape[1]} wide, the base's {base_ref.shape[1]}")
    n_rows = min(ref.shape[0], base_ref.shape[0])
    chosen = _chosen_rows(n_rows, job)
    height = max(64, MOST_BLOCK // ref.shape[1])
    with ExitStack() as opened:
        theirs = opened.enter_context(_rows(base.checkpoint, base_ref, chosen, base))
        ours = opened.enter_context(_rows(checkpoint, ref, chosen))
        blocks = torch.split(theirs, height), torch.split(ours, height)
        notes, pairs = _without_flaws(list(map(RowPair, *blocks)))
        moves = measure_rows(pairs, is_tied=_is_head_too(checkpoint, ref, member.config))
    if ref.shape[0] != base_ref.shape[0]:
        notes.append(f"its vocabulary has {ref.shape[0]} rows, the base's {base_ref.shape[0]}")
    share, note = len(chosen) / n_rows, "; ".join(notes) or None
    footprint = _of_moves(moves, n_rows, np.arange(chosen.start, chosen.stop), share, note)
    return _with_tokenizer(footprint, member, job, differs=ref.shape[0] != base_ref.shape[0])


def _of_moves(
    moves: RowMoves,
    vocabulary: int,
    tokens: np.ndarray,
    share: float = 1.0,
    note: str | None = None,
) -> Footprint:
    """The footprint of an embedding of which these `tokens` were read."""
    return Footprint(
        kind=moves.kind,
        vocabulary=vocabulary,
        tokens=tokens[moves.rows].astype(np.uint32),
        strengths=strengths_of(moves),
        share=share,
        note=note,
    )


def _is_head_too(checkpoint: Checkpoint, ref: TensorRef, config: Config | None) -> bool:
    """Whether the embedding is known to be the language head too: the model's class has one, and no
    other tensor of that shape is stored."""
    classes = str((config or {}).get("architectures"))
    n_alike = sum(other.shape == ref.shape for other in checkpoint.tensors.values())
    return n_alike == 1 and _LANGUAGE_HEAD.search(classes) is not None


_LANGUAGE_HEAD = re.compile(r"LMHead|For(?:CausalLM|MaskedLM|ConditionalGeneration|PreTraining)")


def _chosen_rows(n_rows: int, job: IndexJob) -> range:
    """The rows that are read, by the base's alone."""
    if job.parts is None:
        return range(n_rows)
    length = max(1, math.floor(n_rows * job.parts.share * FOR_CONTENT))
    start = math.floor(BLOCK_AT * (n_rows - length))
    return range(start, start + length)


@contextmanager
def _rows(
    checkpoint: Checkpoint, ref: TensorRef, chosen: range, base: BaseWeights | None = None
) -> Iterator[torch.Tensor]:
    """The chosen rows; all of a remote base's are held for the models to come."""
    if chosen.start:
        block = RowBlock(ref.name, chosen.start, chosen.stop)
        ((_, rows),) = checkpoint.stream_rows([block])
        yield rows
    elif base is not None and not checkpoint.concurrent:
        yield base.held_embedding(ref.name)[: chosen.stop]
    else:
        with checkpoint.view(ref.name) as tensor:
            yield tensor[: chosen.stop]


def _without_flaws(pairs: RowPairs) -> tuple[list[str], RowPairs]:
    """What is said of rows that were not trained but damaged or cleared, and the pairs with zeros
    in their place, which count as no rows. Raises `ModelError` where there are no others."""
    # rows that are the base's are neither: NaN and infinity less themselves are no zeros
    changed = [(~pair.are_equal).nonzero().squeeze(1) for pair in pairs]
    both = list(zip(pairs, changed, strict=True))
    before = torch.cat([pair.sizes[rows] for pair, rows in both])
    after = torch.cat([largest(pair.rows.index_select(0, rows)) for pair, rows in both])
    is_broken, is_there = ~(before.isfinite() & after.isfinite()), before > AS_ZERO
    is_cleared = is_there & ~is_broken & (after <= AS_ZERO)
    flaws = {"with NaN or infinity": is_broken, "of zeros, and not the base's": is_cleared}
    counts = {what: int(of.sum()) for what, of in flaws.items()}
    notes = [f"{count(n, 'row')} {what}" for what, n in counts.items() if n]
    if not notes:
        return notes, pairs
    is_flawed = is_broken | is_cleared
    if int((is_flawed & is_there).sum()) == sum(int(pair.are_there.sum()) for pair in pairs):
        raise ModelError("non-finite", f"of its input embedding {' and '.join(notes)}")
    flawed = torch.split(is_flawed, [len(rows) for rows in changed])
    return notes, [
        RowPair(*(x.index_fill(0, rows[one], 0) for x in (pair.base, pair.rows)))
        for (pair, rows), one in zip(both, flawed, strict=True)
    ]


def _of_adapter(member: Member, checkpoint: Checkpoint, job: IndexJob) -> Footprint:
    """Of a whole embedding that it stores, of trained tokens, or of a LoRA of the embedding."""
    whole = {n: ref for n, ref in checkpoint.tensors.items() if parse_name(n).kind == "value"}
    ref = find_embedding(whole, None)
    if ref is not None:
        return _compared(member, checkpoint, ref, job)
    for name in checkpoint.tensors:
        if "trainable_tokens_delta" in name:
            return _trained_tokens(member, checkpoint, name, job)
    left = [n for n in checkpoint.tensors if "lora_embedding_A" in n]
    return _low_rank(checkpoint, left[0]) if left else _none(None, "frozen")


def _trained_tokens(member: Member, checkpoint: Checkpoint, name: str, job: IndexJob) -> Footprint:
    """`trainable_token_indices`: the rows that may be trained are named in the config; those that
    turned from the base's occurred."""
    rows = checkpoint.read(name)
    indices = _token_indices(member.config, len(rows))
    if indices is None:
        return _none("adapter_config.json does not say which tokens it trained")
    base = job.base.weights()
    ref = _base_embedding(base)
    if rows.shape[1] != ref.shape[1]:
        return _none(f"its trained tokens are {rows.shape[1]} wide, the base's {ref.shape[1]}")
    known = np.flatnonzero(indices < ref.shape[0])
    known = known[np.argsort(indices[known])]
    with _rows(base.checkpoint, ref, range(ref.shape[0]), base) as embedding:
        moves = measure_few_rows(embedding[indices[known]], rows[known])
    share, note = len(known) / ref.shape[0], f"{count(len(indices), 'token')} may move at all"
    return _of_moves(moves, ref.shape[0], indices[known], share, note)


def _base_embedding(base: BaseWeights) -> TensorRef:
    ref = find_embedding(base.checkpoint.tensors, base.config)
    if ref is None:
        raise BaseError("no tensor is known as its input embedding")
    if ref.dtype not in DTYPES or not DTYPES[ref.dtype].is_floating_point:
        raise BaseError(f"it is stored as {ref.dtype}")
    return ref


def _token_indices(config: Config | None, n_rows: int) -> np.ndarray | None:
    value = (config or {}).get("trainable_token_indices")
    lists = list(value.values()) if isinstance(value, Mapping) else [value]
    for entry in lists:
        if (
            isinstance(entry, list)
            and len(entry) == n_rows
            and all(type(index) is int and 0 <= index < 2**31 for index in entry)
        ):
            return np.array(entry, dtype=np.int64)
    return None


def _low_rank(checkpoint: Checkpoint, name: str) -> Footprint:
    """A starts at zero for embeddings (`peft.tuners.lora.layer.Embedding`), so that the column of a
    token that never occurred stays so."""
    other = name.replace("lora_embedding_A", "lora_embedding_B")
    if other not in checkpoint.tensors:
        return _none("its LoRA of the embedding has no lora_embedding_B")
    a, b = checkpoint.read(name).float(), checkpoint.read(other).float()
    if a.shape[0] != b.shape[1]:
        return _none("the factors of its LoRA of the embedding do not fit")
    moved = torch.linalg.norm(torch.linalg.qr(b).R @ a, dim=0).numpy()
    touched = np.flatnonzero(moved > 0)
    is_dense = len(touched) == len(moved)
    moves = DENSE if is_dense else _exact(touched, moved[touched])
    return _of_moves(moves, len(moved), np.arange(len(moved)))


def _with_tokenizer(
    footprint: Footprint, member: Member, job: IndexJob, *, differs: bool
) -> Footprint:
    """The footprint with the model's own tokenizer, where that is not the base's. On the Hub it is
    fetched only where the numbers of rows differ."""
    from ..store import tokenizer_hash

    if member.hub is not None and not differs:
        return footprint
    base = job.base.tokenizer()
    try:
        own = member.tokenizer(job.session)
    except ModelError as err:
        note = "; ".join(filter(None, [footprint.note, f"its tokenizer: {err.reason}"]))
        return replace(footprint, note=note)
    if own is None or own == base:
        return footprint
    content = own if base is None else difference(own, tokenizer_hash(base), base)
    return replace(footprint, tokenizer=tokenizer_hash(content), own_tokenizer=content)
