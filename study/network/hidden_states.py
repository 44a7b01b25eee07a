"""Texts as batches of token ids, and the hidden states of a network's stream over them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from ...results import JsonRecord, agree, count
from ..texts import Text
from .anatomy import decoder_start
from .model_loading import Network


class Batching(TypedDict, total=False):
    batch_size: int
    max_tokens: int
    keep_special: bool
    keep_first: bool


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Some texts from the `first` on, as token ids, padded on the right; padding does not count,
    special and first tokens only on request."""

    first: int
    ids: Int64[torch.Tensor, "texts tokens"]
    mask: Int64[torch.Tensor, "texts tokens"]
    counted: Bool[np.ndarray, "texts tokens"]

    def inputs(self, network: Network) -> Mapping[str, object]:
        """The arguments of the model; an encoder-decoder also reads the shifted texts."""
        inputs: dict[str, object] = {"input_ids": self.ids, "attention_mask": self.mask}
        if network.config.is_encoder_decoder:
            shifted = self.ids.roll(1, dims=1)
            shifted[:, 0] = decoder_start(network.config)
            inputs |= {"decoder_input_ids": shifted, "decoder_attention_mask": self.mask}
        return inputs | ({"use_cache": False} if hasattr(network.config, "use_cache") else {})


@dataclass(frozen=True, slots=True)
class TokenStates:
    """The hidden states of the tokens that count.

    Attributes:
        hidden: The raw stream: layer 0 is the input of the first block, layer l the output of
            block l, before any final norm.
        text: Index of the token's text.
    """

    hidden: Float32[np.ndarray, "layers tokens dim"]
    text: Int64[np.ndarray, " tokens"]


def token_states(
    network: Network, texts: Sequence[Text], **batching: Unpack[Batching]
) -> Iterator[TokenStates]:
    """The states of the network's first stream. Peak: every layer of one batch.

    Special tokens and each text's first position are left out by default: in causal models the
    first position is the same for all texts, and often of another size.

    Raises:
        StudyError: no tokenizer, and texts that are not token ids.
    """
    for batch in encoded(network, texts, **batching):
        rows, positions = np.nonzero(batch.counted)
        if len(rows):
            layers = stream_layers(network, batch)
            hidden = torch.stack([layer[rows, positions] for layer in layers])
            text = (rows + batch.first).astype(np.int64)
            yield TokenStates(hidden.float().cpu().numpy(), text)


def encoded(
    network: Network,
    texts: Sequence[Text],
    *,
    batch_size: int = 16,
    max_tokens: int = 128,
    keep_special: bool = False,
    keep_first: bool = False,
) -> Iterator[TextBatch]:
    """The texts in order, cut to `max_tokens`."""
    for first in range(0, len(texts), batch_size):
        rows = [_token_ids(network, t, max_tokens) for t in texts[first : first + batch_size]]
        counts = [keep_special | ~np.array(special, dtype=bool) for _, special in rows]
        for counted in counts:
            counted[:1] &= keep_first
        if any(len(counted) for counted in counts):
            yield padded(network, [ids for ids, _ in rows], counts, first=first)


def padded(
    network: Network,
    texts: Sequence[Sequence[int]],
    counted: Sequence[Bool[np.ndarray, " _"]],
    *,
    first: int = 0,
) -> TextBatch:
    padding = getattr(network.config, "pad_token_id", None)
    padding = padding if isinstance(padding, int) and padding >= 0 else 0
    rows = [torch.tensor(numbers, dtype=torch.int64) for numbers in texts]
    ids = pad_sequence(rows, batch_first=True, padding_value=padding).to(network.device)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    counts = pad_sequence([torch.from_numpy(own) for own in counted], batch_first=True)
    return TextBatch(first, ids, mask.to(network.device), counts.numpy())


def require_same_tokens(
    network: Network, other: Network, texts: Sequence[Text], max_tokens: int
) -> None:
    """Refuse two networks that would not read the same tokens; nothing is run."""
    for text in texts:
        mine, theirs = (_token_ids(n, text, max_tokens)[0] for n in (network, other))
        if mine != theirs:
            raise StudyError(
                f"{network.name} and {other.name} cut text {text.id!r} into other tokens: "
                "they cannot be compared token by token"
            )
        for n in (network, other):
            if max(mine, default=0) >= n.config.vocab_size:
                raise StudyError(f"{n.name} has no token {max(mine)}: its vocabulary is smaller")


def run_with_hooks(network: Network, batch: TextBatch, hooks: Iterable[RemovableHandle]) -> None:
    """Run the network over a batch, without gradients, and remove the hooks at the end."""
    with ExitStack() as attached, torch.inference_mode():
        for hook in hooks:
            attached.enter_context(hook)
        network.model(**batch.inputs(network))


def stream_input(args: tuple[object, ...], kwargs: dict[str, object]) -> torch.Tensor:
    hidden = args[0] if args else kwargs["hidden_states"]
    assert isinstance(hidden, torch.Tensor)
    return hidden


def first_tensor(output: object) -> torch.Tensor:
    tensor = output[0] if isinstance(output, tuple) else output
    assert isinstance(tensor, torch.Tensor)
    return tensor


def stream_layers(network: Network, batch: TextBatch) -> list[torch.Tensor]:
    """The input of the first stream's first block, then each output: (texts, tokens, dim)."""
    layers: list[torch.Tensor] = []

    def entering(_: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if not layers:
            layers.append(stream_input(args, kwargs))

    def leaving(_: object, __: object, output: object) -> None:
        layers.append(first_tensor(output))

    def hooks() -> Iterator[RemovableHandle]:
        for block in network.stacks[0].blocks:
            yield block.register_forward_pre_hook(entering, with_kwargs=True)
            yield block.register_forward_hook(leaving)

    run_with_hooks(network, batch, hooks())
    return layers


def _token_ids(network: Network, text: Text, max_tokens: int) -> tuple[list[int], list[int]]:
    """(token ids, 1 for special ones) of one text."""
    limit = min(max_tokens, network.window or max_tokens)
    if network.tokenizer is not None:
        encoding = network.tokenizer(
            text.text, truncation=True, max_length=limit, return_special_tokens_mask=True
        )
        return list(encoding["input_ids"]), list(encoding["special_tokens_mask"])
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


AT_ONCE = 256
"""Texts that are tokenised together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextWindow(JsonRecord):
    """How texts fit into a network.

    Attributes:
        texts, cut: How many texts, and how many of them have more tokens than are read.
        longest: Tokens of the longest text.
        max_tokens: The limit that the user sets.
        window: The most tokens that the network reads; None where nothing limits it.
    """

    texts: int = field(repr=False)
    cut: int = field(metadata={"key": "texts_cut"})
    longest: int = field(metadata={"key": "longest_text"})
    max_tokens: int
    window: int | None

    def notes(self, *, chosen: bool = False) -> Iterator[str]:
        """What the user is told: texts that are cut, and a limit that has no effect, if the user
        has `chosen` it."""
        beyond = self.window is not None and self.max_tokens > self.window
        if beyond and chosen:
            yield (
                f"the model's window is {self.window}: --max-tokens {self.max_tokens} has no "
                "effect beyond it"
            )
        if self.cut:
            by_window = self.window is not None and self.window <= self.max_tokens
            reason = ", the model's window" if by_window else "; --max-tokens N reads more"
            yield (
                f"{self.cut} of {count(self.texts, 'text')} {agree(self.cut, 'was')} cut to "
                f"{min(self.max_tokens, self.window or self.max_tokens)} tokens{reason}"
            )


def text_window(network: Network, texts: Sequence[Text], max_tokens: int) -> TextWindow:
    """Count the texts that are longer than the network reads; nothing is run."""
    lengths = list(_lengths(network, texts))
    window = network.window
    limit = min(max_tokens, window or max_tokens)
    return TextWindow(
        texts=len(texts),
        cut=sum(length > limit for length in lengths),
        longest=max(lengths, default=0),
        max_tokens=max_tokens,
        window=window,
    )


def _lengths(network: Network, texts: Sequence[Text]) -> Iterator[int]:
    for first in range(0, len(texts), AT_ONCE):
        some = [text.text for text in texts[first : first + AT_ONCE]]
        if network.tokenizer is None:
            yield from (len(text.split()) for text in some)
        else:
            # without `verbose` it warns of every text beyond its limit
            encoded = network.tokenizer(some, truncation=False, verbose=False)
            yield from map(len, encoded["input_ids"])
