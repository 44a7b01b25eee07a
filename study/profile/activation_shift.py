"""Activation shifts: how far a fine-tune moved its hidden states, as fingerprints."""

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

    Special tokens and first positions are left out. Of the last stream: a decoder's, where
    there are two.
    """
    stack = network.stacks[-1]
    constants = branch_constants(network, stack)
    total = np.zeros((len(stack.terms), network.dim))
    count = 0
    for batch in encoded(network, texts, batch_size=16, max_tokens=max_tokens):
        kept = torch.from_numpy(batch.kept).to(network.device)
        last = decompose(network, stack, batch, constants)[-1].terms[:, kept]
        total += last.double().sum(dim=1).cpu().numpy()
        count += int(batch.kept.sum())
    if not count:
        raise StudyError(f"{network.name}: the texts leave no token to study")
    return total / count


def last_token_mean(network: Network, texts: Sequence[Text]) -> Float64[np.ndarray, " dim"]:
    """Mean over texts of the last token's state at the last layer, special or not."""
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


def shift_recipe(name: str, dim: int, texts: Texts) -> Recipe:
    """The recipe of one kind of shift over these texts."""
    return Recipe(name=name, rank=0, dim=dim, params=(("probe", texts.digest),))


def shift_fingerprint(
    recipe: Recipe, tuned: Float64[np.ndarray, " dim"], base: Float64[np.ndarray, " dim"]
) -> Fingerprint | None:
    """The shift as a unit vector; None where nothing moved beyond rounding."""
    shift = tuned - base
    norm = float(np.linalg.norm(shift))
    if norm <= 1e-6 * float(np.linalg.norm(base)):
        return None
    vector: Float32[np.ndarray, " dim"] = (shift / norm).astype(np.float32)
    vector.flags.writeable = False
    return Fingerprint(recipe=recipe, vector=vector, norm=norm)
