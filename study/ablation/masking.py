"""Masking of token ids, for predicting the tokens that were hidden."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Int64
from ...errors import StudyError

CHOSEN = 0.15
MASKED, RANDOM = 0.8, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedTokens:
    """Token ids to feed to the model, and what it should predict.

    Attributes:
        tokens: With masks and random tokens put in.
        text: Row of each chosen position, in reading order.
        position: Column of each chosen position.
        targets: The id that stood there.
        masked, random, kept: How many of the chosen were treated how.
    """

    tokens: Int64[np.ndarray, "texts positions"] = field(compare=False)
    text: Int64[np.ndarray, " chosen"] = field(compare=False)
    position: Int64[np.ndarray, " chosen"] = field(compare=False)
    targets: Int64[np.ndarray, " chosen"] = field(compare=False)
    masked: int
    random: int
    kept: int
    seed: int

    def settings(self) -> dict[str, object]:
        """How the positions were masked, ready for JSON."""
        return {
            "chosen": CHOSEN,
            "masked": self.masked,
            "random": self.random,
            "kept": self.kept,
            "seed": self.seed,
        }


def mask_tokens(
    tokens: Int64[np.ndarray, "texts positions"],
    maskable: Bool[np.ndarray, "texts positions"],
    *,
    mask_id: int,
    vocabulary: Int64[np.ndarray, " vocabulary"],
    seed: int,
) -> MaskedTokens:
    """Choose 15 % of the maskable positions; mask 80 % of them, replace 10 %, keep 10 %.

    Devlin et al. 2019, A.1, with exact shares (rounded, at least one position) in place of a
    coin a token. A random token is drawn evenly from `vocabulary` (leave special tokens out)
    and may be the one that stood there. Use another seed for each batch.

    Args:
        maskable: False for padding and special tokens.

    Raises:
        StudyError: no position may be masked.
    """
    candidates = np.flatnonzero(maskable)
    if not len(candidates):
        raise StudyError("masked tokens: no position may be masked; give texts with words in them")
    if not len(vocabulary):
        raise ValueError("vocabulary must hold the ids that a random token is drawn from")
    rng = np.random.default_rng(seed)
    n_chosen = max(1, round(CHOSEN * len(candidates)))
    chosen = rng.choice(candidates, size=n_chosen, replace=False)  # in random order
    n_masked, n_random = round(MASKED * n_chosen), round(RANDOM * n_chosen)
    fed = tokens.copy()
    fed.flat[chosen[:n_masked]] = mask_id
    fed.flat[chosen[n_masked : n_masked + n_random]] = rng.choice(vocabulary, size=n_random)
    chosen.sort()
    text, position = np.unravel_index(chosen, tokens.shape)
    return MaskedTokens(
        tokens=fed,
        text=text.astype(np.int64),
        position=position.astype(np.int64),
        targets=tokens.flat[chosen],
        masked=n_masked,
        random=n_random,
        kept=n_chosen - n_masked - n_random,
        seed=seed,
    )
