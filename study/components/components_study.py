"""The components study: what hidden states are made of, and what a fine-tune changed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Unpack

from ...errors import StudyError
from ..network.hidden_states import Batch, Batching, encoded, run_with_hooks
from ..network.model_loading import Network, twin
from ..texts import Text
from .components_report import ComponentsReport
from .decomposition import Decomposed, counted_rows, keeper, streams_of
from .heads import HeadTally, attention_heads
from .linear_fit import LinearTally, held_out_texts
from .local_shift import CallRecord
from .stream_tally import Comparison, StreamTally

Observer = Callable[[Batch, Sequence[Sequence[Decomposed]]], None]
"""Called with each batch and the layers of every stream; of the tokens that count."""


def components_study(
    network: Network,
    texts: Sequence[Text],
    *,
    against: Network | None = None,
    heads: bool = False,
    linear: bool = False,
    watched: Callable[[Iterator[Batch]], Iterable[Batch]] = iter,
    observe: Observer | None = None,
    **batching: Unpack[Batching],
) -> ComponentsReport:
    """Every stream of a network, term by term; `against` is its base, or another relative.

    Each model is run once over each batch. `watched` is called with the batches and returns them,
    with a progress bar for example.

    Args:
        heads: Whether attention is split by head too.
        linear: Whether the feed-forward term is fitted by a linear map too.

    Peak: all terms of all layers of the tokens of one batch, with `against` or `observe`; else
    those of one layer. Per token, layer and term two float32 numbers, twice with `against`. With
    `linear` 8 float64 matrices of dim² a layer.

    Raises:
        StudyError: the terms do not add up, the models differ in shape or tokenisation, or no
            token is left.
    """
    held_out = held_out_texts(texts) if linear else frozenset()
    tallies = [
        StreamTally(
            stream,
            HeadTally(attention_heads(network, stream.stack)) if heads else None,
            LinearTally(stream.stack, network.dim, held_out) if linear else None,
        )
        for stream in streams_of(network)
    ]
    comparisons: list[Comparison] = []
    other = against
    if against is not None:
        _require_alike(network, against, texts)
        other = against if against.model is not network.model else twin(against)
        comparisons = [
            Comparison(
                tally,
                StreamTally(stream),
                attention_heads(other, stream.stack) if heads else None,
            )
            for tally, stream in zip(tallies, streams_of(other), strict=True)
        ]
    n_tokens = 0
    for batch in watched(encoded(network, texts, **batching)):
        n_tokens += int(batch.counted.sum())
        if not batch.counted.any():
            continue
        rows = counted_rows(batch)
        layers: list[list[Decomposed]] = [[] for _ in tallies]
        records = [CallRecord(stack) for stack in network.stacks]
        keep = bool(comparisons) or observe is not None
        hooks = [
            tally.attach(batch, rows, keeper(kept) if keep else None)
            for tally, kept in zip(tallies, layers, strict=True)
        ]
        recorders = [record.attach() for record in records] if comparisons else []
        run_with_hooks(network, batch, chain(*hooks, *recorders))
        for tally in tallies:
            tally.end_pass(network.name)
        if observe is not None:
            observe(batch, layers)
        if other is not None:
            compared = zip(comparisons, records, layers, strict=True)
            hooks = [c.attach(batch, rows, record, mine) for c, record, mine in compared]
            run_with_hooks(other, batch, chain(*hooks))
            for comparison in comparisons:
                comparison.end_pass(other.name)
    if not n_tokens:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    return ComponentsReport(
        model=network.name,
        against=None if against is None else against.name,
        n_texts=len(texts),
        n_tokens=n_tokens,
        keep_special=batching.get("keep_special", False),
        stacks=tuple(comparison.report(n_tokens) for comparison in comparisons)
        or tuple(tally.report(n_tokens, None, None) for tally in tallies),
    )


def _require_alike(network: Network, against: Network, texts: Sequence[Text]) -> None:
    pair = (network, against)
    here, there = (f"{n.config.model_type}, {n.n_layers} layers of {n.dim}" for n in pair)
    mine, theirs = ([(stack.terms, len(stack.blocks)) for stack in n.stacks] for n in pair)
    if here != there or mine != theirs:
        raise StudyError(
            f"{network.name} ({here}) and {against.name} ({there}) are not built alike"
        )
    if network.tokenizer is not None and against.tokenizer is not None:
        for text in texts[:8]:
            if network.tokenizer(text.text).input_ids != against.tokenizer(text.text).input_ids:
                raise StudyError(
                    f"{network.name} and {against.name} cut text {text.id!r} into other tokens: "
                    "they cannot be compared token by token"
                )
