"""Texts as batches of token ids, and the hidden states of a network's stream over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from ..texts import Text
from .model_loading import Network


@dataclass(frozen=True, slots=True)
class Batch:
    """Some texts as token ids, padded on the right.

    Attributes:
        first: Index of its first text.
        kept: Tokens that count: neither padding, nor special, nor first, as asked.
    """

    first: int
    ids: Int64[torch.Tensor, "texts tokens"]
    mask: Int64[torch.Tensor, "texts tokens"]
    kept: Bool[np.ndarray, "texts tokens"]

    def inputs(self, network: Network) -> Mapping[str, object]:
        """What the model is called with; an encoder-decoder also reads the texts shifted."""
        inputs: dict[str, object] = {"input_ids": self.ids, "attention_mask": self.mask}
        if network.config.is_encoder_decoder:
            start = network.config.decoder_start_token_id
            shifted = self.ids.roll(1, dims=1)
            shifted[:, 0] = network.config.pad_token_id or 0 if start is None else start
            inputs |= {"decoder_input_ids": shifted, "decoder_attention_mask": self.mask}
        return inputs | {"use_cache": False} if _has_cache(network) else inputs


def encoded(
    network: Network,
    texts: Sequence[Text],
    *,
    batch_size: int,
    max_tokens: int,
    keep_special: bool = False,
    keep_first: bool = False,
) -> Iterator[Batch]:
    """The texts in order, cut to `max_tokens`.

    Raises:
        StudyError: there is no tokenizer and the texts are not token ids either.
    """
    for first in range(0, len(texts), batch_size):
        rows = [_row(network, t, max_tokens) for t in texts[first : first + batch_size]]
        width = max(len(ids) for ids, _ in rows)
        if not width:
            continue
        ids = torch.full((len(rows), width), _padding(network), dtype=torch.int64)
        mask = torch.zeros((len(rows), width), dtype=torch.int64)
        kept = np.zeros((len(rows), width), dtype=bool)
        for place, (numbers, special) in enumerate(rows):
            ids[place, : len(numbers)] = torch.tensor(numbers)
            mask[place, : len(numbers)] = 1
            kept[place, : len(numbers)] = True if keep_special else ~np.array(special, dtype=bool)
        if not keep_first:
            kept[:, 0] = False
        yield Batch(first, ids.to(network.device), mask.to(network.device), kept)


def _row(network: Network, text: Text, max_tokens: int) -> tuple[list[int], list[int]]:
    """(token ids, 1 for special ones) of one text."""
    limit = min(max_tokens, network.longest_text or max_tokens)
    if network.tokenizer is not None:
        made = network.tokenizer(
            text.text,
            truncation=True,
            max_length=min(limit, network.tokenizer.model_max_length),
            return_special_tokens_mask=True,
        )
        return list(made["input_ids"]), list(made["special_tokens_mask"])
    try:
        ids = [int(number) for number in text.text.split()][:limit]
    except ValueError:
        raise StudyError(
            f"{network.name} has no tokenizer: give token ids, numbers with spaces between, "
            f"in place of text {text.id!r}, or a base that has one"
        ) from None
    if not all(0 <= number < network.config.vocab_size for number in ids):
        raise StudyError(
            f"text {text.id!r} has a token id outside 0…{network.config.vocab_size - 1}"
        )
    return ids, [0] * len(ids)


def _padding(network: Network) -> int:
    known = getattr(network.config, "pad_token_id", None)
    return int(known) if isinstance(known, int) and known >= 0 else 0


def _has_cache(network: Network) -> bool:
    return hasattr(network.config, "use_cache")


@dataclass(frozen=True, slots=True)
class TokenStates:
    """The tokens that count of some texts.

    Attributes:
        hidden: The raw stream: layer 0 is what enters the first block, layer l what leaves
            block l, before any final norm.
        text: Index into the texts given.
        position: From 0, of the token in its text.
        token: Its id.
    """

    hidden: Float32[np.ndarray, "layers tokens dim"]
    text: Int64[np.ndarray, " tokens"]
    position: Int64[np.ndarray, " tokens"]
    token: Int64[np.ndarray, " tokens"]


def token_states(
    network: Network,
    texts: Sequence[Text],
    *,
    batch_size: int = 16,
    max_tokens: int = 128,
    keep_special: bool = False,
    keep_first: bool = False,
) -> Iterator[TokenStates]:
    """Of the network's first stream. Peak: every layer of one batch.

    Special tokens and each text's first position are left out: in causal models the first
    position is the same for all texts, and often of another size.

    Raises:
        StudyError: no tokenizer, and texts that are not token ids.
    """
    for batch in encoded(
        network,
        texts,
        batch_size=batch_size,
        max_tokens=max_tokens,
        keep_special=keep_special,
        keep_first=keep_first,
    ):
        rows, positions = np.nonzero(batch.kept)
        if not len(rows):
            continue
        layers = [layer[rows, positions] for layer in _stream(network, batch)]
        yield TokenStates(
            hidden=torch.stack(layers).float().cpu().numpy(),
            text=(rows + batch.first).astype(np.int64),
            position=positions.astype(np.int64),
            token=batch.ids.cpu().numpy()[rows, positions].astype(np.int64),
        )


def _stream(network: Network, batch: Batch) -> list[torch.Tensor]:
    """What enters the first block, then what leaves each; of shape (texts, tokens, dim)."""
    seen: list[torch.Tensor] = []

    def entering(_: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if not seen:
            seen.append(stream_input(args, kwargs))

    def leaving(_: object, __: object, output: object) -> None:
        seen.append(first_tensor(output))

    with ExitStack() as hooks, torch.inference_mode():
        for block in network.stacks[0].blocks:
            before = block.register_forward_pre_hook(entering, with_kwargs=True)
            after = block.register_forward_hook(leaving)
            hooks.callback(before.remove)
            hooks.callback(after.remove)
        network.model(**batch.inputs(network))
    return seen


def stream_input(args: tuple[object, ...], kwargs: dict[str, object]) -> torch.Tensor:
    """The hidden states that a block is called with."""
    given = args[0] if args else kwargs["hidden_states"]
    assert isinstance(given, torch.Tensor)
    return given


def first_tensor(output: object) -> torch.Tensor:
    """A module's output where it may come with others."""
    found = output[0] if isinstance(output, tuple) else output
    assert isinstance(found, torch.Tensor)
    return found
