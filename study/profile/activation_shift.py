"""Activation shifts: the change of a fine-tune's hidden states, as fingerprints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ...arrays import Float32, Float64
from ...errors import StudyError
from ...records import Fingerprint, Recipe
from ..components.decomposition import branch_constants, decompose
from ..network.hidden_states import encoded
from ..network.model_loading import Network
from ..texts import Text, Texts

ACTIVATION_SHIFT, DELTA_ACTIVATIONS = "activation-shift", "delta-activations"


def mean_terms(
    network: Network, texts: Sequence[Text], *, max_tokens: int = 128
) -> Float64[np.ndarray, "terms dim"]:
    """The mean token at the last layer, term by term, after the final norm if there is one.

    Special tokens and first positions are left out. Of two streams, the decoder's is used.
    """
    stack = network.stacks[-1]
    constants = branch_constants(network, stack)
    total = np.zeros((len(stack.terms), network.dim))
    count = 0
    for batch in encoded(network, texts, max_tokens=max_tokens):
        counted = torch.from_numpy(batch.counted).to(network.device)
        last = decompose(network, stack, batch, constants)[-1].terms[:, counted]
        total += last.double().sum(dim=1).cpu().numpy()
        count += int(batch.counted.sum())
    if not count:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    return total / count


def last_token_mean(network: Network, texts: Sequence[Text]) -> Float64[np.ndarray, " dim"]:
    """The mean over texts of the last token's state at the last layer, special or not."""
    stack = network.stacks[-1]
    total = np.zeros(network.dim)
    for batch in encoded(
        network, texts, batch_size=8, max_tokens=512, keep_special=True, keep_first=True
    ):
        last = decompose(network, stack, batch, {})[-1].hidden
        ends = batch.mask.sum(dim=1) - 1
        rows = torch.arange(len(ends), device=last.device)
        total += last[rows, ends].double().sum(dim=0).cpu().numpy()
    return total / len(texts)


def shift_fingerprint(
    name: str, texts: Texts, tuned: Float64[np.ndarray, " dim"], base: Float64[np.ndarray, " dim"]
) -> Fingerprint | None:
    """The shift over these texts as a unit vector; None where only rounding differs."""
    shift = tuned - base
    norm = float(np.linalg.norm(shift))
    if norm <= 1e-6 * float(np.linalg.norm(base)):
        return None
    vector: Float32[np.ndarray, " dim"] = (shift / norm).astype(np.float32)
    vector.flags.writeable = False
    recipe = Recipe(name=name, rank=0, dim=len(shift), params=(("probe", texts.digest),))
    return Fingerprint(recipe=recipe, vector=vector, norm=norm)
