"""The rival of `across`: shifts of activations on the panel's texts, for which both models run.

A model's shift on a text is its mean last hidden state less the base's (Delta Activations,
arXiv 2509.04442, compares models of one base by them). Across bases the shifts have other
axes, so that models are compared by which texts they shift alike: the cosine of the centred Gram
matrices of their shifts, texts by texts (linear CKA: Kornblith et al. 2019, arXiv 1905.00414).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from deltadex.arrays import Float32
from deltadex.training_data import BUILTIN_PANEL

from .text_sets import CUTS, OTHER_CUTS, read_set, rows_of_half

TEXTS = 6
"""Of each data set."""

MAX_LENGTH, BATCH = 32, 64


def panel_texts(texts: Path) -> dict[str, list[str]]:
    """The first texts of every data set of both panels."""
    chosen = {}
    for name in (*CUTS, *OTHER_CUTS):
        rows = read_set(texts, name)
        half = rows_of_half(len(rows), 1, causal=True)[:TEXTS]
        chosen[name] = [rows[i][0] for i in half]
    for path in sorted(BUILTIN_PANEL.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            chosen[path.stem] = [row["text"] for row in csv.DictReader(file)][:TEXTS]
    return chosen


def shifts(
    base: Path, models: list[Path], texts: list[str]
) -> list[Float32[np.ndarray, "texts dim"]]:
    """Of full fine-tunes of a base."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(base)
    before = _states(base, tokenizer, texts)
    return [_states(model, tokenizer, texts) - before for model in models]


def _states(model: Path, tokenizer: object, texts: list[str]) -> Float32[np.ndarray, "texts dim"]:
    network = AutoModel.from_pretrained(model).eval()
    rows = []
    for start in range(0, len(texts), BATCH):
        inputs = tokenizer(  # type: ignore[operator]
            texts[start : start + BATCH],
            truncation=True,
            max_length=MAX_LENGTH,
            padding=True,
            return_tensors="pt",
        )
        with torch.no_grad():
            states = network(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None]
        rows.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(rows)


def similarities(
    left: list[Float32[np.ndarray, "texts dim"]],
    right: list[Float32[np.ndarray, "texts other"]],
    chosen: list[int],
) -> Float32[np.ndarray, "left right"]:
    """Of all models of two bases, by the texts at some places."""
    mine, theirs = (np.stack([_gram(one[chosen]) for one in side]) for side in (left, right))
    # what all fine-tunes of a base shift alike says nothing
    mine, theirs = mine - mine.mean(axis=0), theirs - theirs.mean(axis=0)
    mine, theirs = (side / np.linalg.norm(side, axis=1)[:, None] for side in (mine, theirs))
    return np.asarray(mine @ theirs.T)


def _gram(shift: Float32[np.ndarray, "texts dim"]) -> Float32[np.ndarray, " pairs"]:
    centred = shift - shift.mean(axis=0)
    gram = centred @ centred.T
    return np.asarray((gram / np.linalg.norm(gram)).ravel())
