"""Which tokens of its base's vocabulary a model was trained on: rows of the input embedding that
moved, of full checkpoints and of what adapters store of embeddings (docs/words.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from ..errors import BaseError, ModelError
from ..records import Footprint
from ..results import count
from . import row_moves
from .adapter import parse_name
from .base import BaseWeights, find_embedding
from .checkpoint import DTYPES, Checkpoint, Config, RowBlock, TensorRef
from .family import Member
from .job import FOR_CONTENT, IndexJob
from .tokenizer import difference

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
    height = max(64, row_moves.MOST_BLOCK // ref.shape[1])
    with ExitStack() as opened:
        theirs = opened.enter_context(_rows(base.checkpoint, base_ref, chosen, base))
        ours = opened.enter_context(_rows(checkpoint, ref, chosen))
        blocks = torch.split(theirs, height), torch.split(ours, height)
        notes, pairs = _without_flaws(list(map(row_moves.RowPair, *blocks)))
        moves = row_moves.measure_rows(pairs, is_tied=_is_head_too(checkpoint, ref, member.config))
    if ref.shape[0] != base_ref.shape[0]:
        notes.append(f"its vocabulary has {ref.shape[0]} rows, the base's {base_ref.shape[0]}")
    share, note = len(chosen) / n_rows, "; ".join(notes) or None
    footprint = _of_moves(moves, n_rows, np.arange(chosen.start, chosen.stop), share, note)
    return _with_tokenizer(footprint, member, job, differs=ref.shape[0] != base_ref.shape[0])


def _of_moves(
    moves: row_moves.RowMoves,
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
        strengths=row_moves.strengths_of(moves),
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


def _without_flaws(pairs: row_moves.RowPairs) -> tuple[list[str], row_moves.RowPairs]:
    """What is said of rows that were not trained but damaged or cleared, and the pairs with zeros
    in their place, which count as no rows. Raises `ModelError` where there are no others."""
    # rows that are the base's are neither: NaN and infinity less themselves are no zeros
    changed = [(~pair.are_equal).nonzero().squeeze(1) for pair in pairs]
    both = list(zip(pairs, changed, strict=True))
    before = torch.cat([pair.sizes[rows] for pair, rows in both])
    after = torch.cat([row_moves.largest(pair.rows.index_select(0, rows)) for pair, rows in both])
    is_broken, is_there = ~(before.isfinite() & after.isfinite()), before > row_moves.AS_ZERO
    is_cleared = is_there & ~is_broken & (after <= row_moves.AS_ZERO)
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
        row_moves.RowPair(*(x.index_fill(0, rows[one], 0) for x in (pair.base, pair.rows)))
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
        moves = row_moves.measure_few_rows(embedding[indices[known]], rows[known])
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
    kind: Literal["exact", "dense", "frozen"] = "exact" if len(touched) else "frozen"
    if len(touched) == len(moved):
        kind, touched = "dense", touched[:0]
    moves = row_moves.RowMoves(kind, touched, moved[touched])
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
