"""What gradients will take on this machine, from products of matrices of a base's shapes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from ..study.network import matrix_shapes
from .examples import Example

TOKENS = 256
"""Of the product that is timed."""

REPEATS = 5

PASSES, HEAD_PASSES = 3, 1
"""Products with each matrix: states forward, δ backward, and δ xᵀ; forward once more where a head
is fitted on the states first."""

OVERHEAD = 1.4
"""Of everything between the matrices. Measured: MiniLM 1.2, GPT-2 and Llama of 192 units 1.7."""

POOLING_TOKENS = 3000
"""What the factors and sketches of a gradient cost, in tokens forward. Measured on MiniLM."""

SAMPLED = 32
"""Texts of a data set whose tokens are counted."""


@dataclass(frozen=True, slots=True)
class GradientCost:
    """Seconds that one token takes through all matrices of a base, forward."""

    token_s: float

    @classmethod
    def measure(cls, base: str, tokenizer: Any, device: str, dtype: str) -> GradientCost:
        """Times products of random matrices; the base's configuration is read, not its weights.
        `StudyError` where transformers cannot make a model of it."""
        shapes = matrix_shapes(base, tokenizer)
        product = {shape: _product_s(shape, device, getattr(torch, dtype)) for shape in shapes}
        return cls(sum(n * product[shape] for shape, n in shapes.items()) / TOKENS)

    def seconds(self, tokens: float, *, labelled: bool) -> float:
        """Of the gradient of one data set, and its sketches."""
        passes = PASSES + HEAD_PASSES * labelled
        return self.token_s * (tokens * passes * OVERHEAD + POOLING_TOKENS)


def count_tokens(tokenizer: Any, examples: Sequence[Example], max_tokens: int) -> float:
    """Tokens of all examples, cut to `max_tokens`, by the first `SAMPLED`: they are in random
    order."""
    sample = [f"{e.text} {e.pair} {e.completion}" for e in examples[:SAMPLED]]
    ids = tokenizer(sample, truncation=True, max_length=max_tokens)["input_ids"]
    return sum(map(len, ids)) * len(examples) / len(sample)


def _product_s(shape: tuple[int, int], device: str, dtype: torch.dtype) -> float:
    n_out, n_in = shape
    states = torch.randn(TOKENS, n_in, device=device).to(dtype)
    matrix = torch.randn(n_out, n_in, device=device).to(dtype)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        # what is read back has been computed, on a GPU too
        (states @ matrix.T)[0, 0].item()
        seconds.append(time.perf_counter() - start)
    return median(seconds)
