"""Hidden states of a network's residual stream, token by token, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch

from ...arrays import Float32, Int64
from ..texts import Text
from .encode import Batch, encoded
from .load import Network


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
