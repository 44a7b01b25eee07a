"""The probe: fixed texts for every model, and the settings of a profile; loads no network."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from ..texts import Text, Texts

VERSION = 2
"""Raised whenever the numbers would change."""

SAMPLED_TOKENS = 300
"""Tokens for the classifier of layers."""

PROMPTS = tuple(
    f"{opening}\n\n### Instruction:\nPlease provide a response. Input:Input.\n\n### Response:"
    for opening in (
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.",
        "The task described below requires a response that completes the request accurately.",
        "Below is a description of a task. Provide a response that aligns with the requirements.",
        "The following instruction outlines a task. Generate a response that meets the specified "
        "request.",
        "You are given an instruction and input. Write a response that completes the task as "
        "requested.",
    )
)
"""The five generic prompts of Delta Activations (Xu et al. 2025, arXiv 2509.04442)."""


@cache
def probe_texts() -> Texts:
    """64 short parallel texts in eight languages, by language and script."""
    text = files(__package__).joinpath("probe.json").read_text("utf-8")
    return Texts(
        tuple(
            Text(sentence, group, str(number))
            for group, sentences in json.loads(text).items()
            for number, sentence in enumerate(sentences, start=1)
        )
    )


@cache
def prompt_texts() -> Texts:
    """The five prompts."""
    return Texts(tuple(Text(prompt, "", str(n)) for n, prompt in enumerate(PROMPTS, start=1)))


def profile_settings() -> dict[str, Any]:
    """Everything but the models that changes a profile's numbers."""
    return {
        "version": VERSION,
        "probe": probe_texts().digest,
        "prompts": prompt_texts().digest,
        "special_tokens": False,
        "first_positions": False,
        "sampled_tokens": SAMPLED_TOKENS,
    }
