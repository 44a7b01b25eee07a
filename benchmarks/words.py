"""What footprints tell: touched rows against the tokens that really were in a batch, and files
against the models that were trained on them.

`python -m benchmarks.words --texts FOLDER [--device cuda] [--runs NAME ...]`: trains fine-tunes of
all-MiniLM-L6-v2 on halves of the sets in FOLDER (`benchmarks/families/text_sets.py`), keeps of each
its footprint alone, and prints a row for each kind of run.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)
from transformers.utils import logging

from benchmarks.families.base import base_folder
from benchmarks.families.text_sets import CUTS, read_set, rows_of_half
from deltadex.indexer.footprint import RowPair, measure_rows, strengths_of
from deltadex.indexer.tokenizer import read_tokenizer
from deltadex.records import Footprint
from deltadex.search.footprints import FileTokens
from deltadex.search.vocabulary import Vocabulary

logging.set_verbosity_error()
logging.disable_progress_bar()

LENGTH, BATCH, BLOCK = 32, 24, 8192
PROMPT = "Classify the following text into a category: "
STORED = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Kind:
    """How a run is trained; `stored`: the types that it is saved in; `after`: it is trained on
    another set too, or merged with a model of that, half and half."""

    steps: int = 50
    rate: float = 1e-4
    decay: float = 0.01
    optimizer: str = "adamw"
    task: Literal["classes", "masked", "written"] = "classes"
    prompt: str = ""
    after: Literal["", "resumed", "merged"] = ""
    trained: torch.dtype = torch.float32
    stored: tuple[str, ...] = ("float32",)


KINDS = {
    "decay 0": Kind(decay=0.0, stored=tuple(STORED)),
    "decay .01": Kind(stored=tuple(STORED)),
    "decay .1": Kind(decay=0.1, stored=tuple(STORED)),
    "25 steps at 2e-5": Kind(steps=25, rate=2e-5, stored=tuple(STORED)),
    "600 steps, decay .1": Kind(steps=600, decay=0.1, stored=tuple(STORED)),
    "4 steps": Kind(steps=4),
    "trained in bfloat16": Kind(trained=torch.bfloat16, stored=("bfloat16",)),
    "SGD, momentum": Kind(optimizer="sgd", rate=3e-2),
    "Adafactor": Kind(optimizer="adafactor"),
    "a prompt before each text": Kind(prompt=PROMPT),
    "Lion": Kind(optimizer="lion", rate=3e-5),
    "trained again on another set": Kind(after="resumed"),
    "merged with a model of another set": Kind(after="merged"),
    "masked, tied head": Kind(steps=40, task="masked", stored=tuple(STORED)),
    "T5, head as the base's": Kind(steps=60, rate=1e-3, task="written"),
}
"""The last one is of `--base`, a T5."""


@dataclass
class Tally:
    models: int = 0
    kinds: set[str] = field(default_factory=set)
    touched: int = 0
    wrong: int = 0
    lost: int = 0
    own: int = 0
    others: int = 0
    mistaken: int = 0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--base", type=Path, help="A folder; all-MiniLM-L6-v2 by default.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--sets", nargs="*", default=list(CUTS))
    parser.add_argument("--steps", type=int, help="Most steps of a run.")
    asked = parser.parse_args(arguments)
    base = asked.base or base_folder()
    content = read_tokenizer(lambda name: _content(base, name))
    assert content is not None
    vocabulary = Vocabulary(content)
    halves = {name: _halves(asked.texts, name) for name in asked.sets}
    files = {
        (name, half): FileTokens.of(vocabulary, texts)
        for name, both in halves.items()
        for half, (texts, _) in enumerate(both)
    }
    tallies: dict[str, Tally] = defaultdict(Tally)
    names = list(halves)
    for run in asked.runs:
        kind = KINDS[run]
        kind = replace(kind, steps=min(kind.steps, asked.steps or kind.steps))
        for place, (name, half) in enumerate(product(names, (0, 1))):
            other = names[(place // 2 + 1) % len(names)]
            parts = [(name, half), (other, half)][: 2 if kind.after else 1]
            rows = [halves[one][which] for one, which in parts]
            whole = FileTokens.of(vocabulary, [text for texts, _ in rows for text in texts])
            for stored, footprint, seen in _footprints(base, kind, rows, asked.device):
                count(tallies[f"{run}, {stored}"], footprint, seen, files, (whole, parts))
    print_tallies(tallies)


def _content(folder: Path, name: str) -> bytes | None:
    path = folder / name
    return path.read_bytes() if path.exists() else None


def _halves(folder: Path, name: str) -> list[tuple[list[str], list[int]]]:
    rows = read_set(folder, name)
    classes = sorted({label for _, label in rows})
    chosen = [rows_of_half(len(rows), half, causal=False) for half in (0, 1)]
    return [
        ([rows[i][0] for i in some], [classes.index(rows[i][1]) for i in some]) for some in chosen
    ]


LOADERS = {
    "classes": AutoModelForSequenceClassification,
    "masked": AutoModelForMaskedLM,
    "written": AutoModelForSeq2SeqLM,
}

Rows = tuple[list[str], list[int]]
"""Texts and classes."""


def _footprints(
    base: Path, kind: Kind, sets: Sequence[Rows], device: str
) -> Iterator[tuple[str, Footprint, set[int]]]:
    """The footprint of one run in every type that it is stored in, and its batches' tokens."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = _loaded(base, kind, sets[0])
    start = _embedding(model).float().clone()
    seen, trained = set[int](), []
    for rows in sets:
        if trained and kind.after == "merged":
            model = _loaded(base, kind, rows)
        elif trained:
            rows = (rows[0], [one % (max(sets[0][1]) + 1) for one in rows[1]])
        seen |= _train(model, tokenizer, kind, rows, device)
        trained.append(_embedding(model).clone())
    last = torch.stack(trained).mean(dim=0) if kind.after == "merged" else trained[-1]
    for stored in kind.stored:
        saved = last.to(STORED[stored])
        moves = measure_rows(list(map(RowPair, start.split(BLOCK), saved.split(BLOCK))))
        footprint = Footprint(
            kind=moves.kind,
            vocabulary=len(start),
            tokens=moves.rows.astype(np.uint32),
            strengths=strengths_of(moves),
        )
        yield stored, footprint, seen


def _loaded(base: Path, kind: Kind, rows: Rows) -> Any:
    settings: dict[str, Any] = {}
    if kind.task == "classes":
        settings["num_labels"] = max(rows[1]) + 1
    return LOADERS[kind.task].from_pretrained(base, **settings).to(kind.trained)


def _embedding(model: Any) -> torch.Tensor:
    weight: torch.Tensor = model.get_input_embeddings().weight
    return weight.detach().cpu()


def _train(model: Any, tokenizer: Any, kind: Kind, rows: Rows, device: str) -> set[int]:
    set_seed(0)
    rng, (texts, labels) = np.random.default_rng(0), rows
    model.to(device).train()
    optimizer = _optimizer(kind, model.parameters())
    seen: set[int] = set()
    for _ in range(kind.steps):
        picked = rng.choice(len(texts), min(BATCH, len(texts)), replace=False)
        inputs = tokenizer(
            [kind.prompt + texts[i] for i in picked],
            truncation=True,
            max_length=LENGTH,
            padding=True,
            return_tensors="pt",
        )
        ids = inputs["input_ids"]
        seen.update(ids.flatten().tolist())
        wanted = torch.tensor([labels[i] for i in picked])
        if kind.task == "written":
            wanted = tokenizer([str(labels[i]) for i in picked], return_tensors="pt").input_ids
            seen.update([*wanted.flatten().tolist(), model.config.decoder_start_token_id])
        elif kind.task == "masked":
            hidden = (torch.rand(ids.shape) < 0.15) & inputs["attention_mask"].bool()
            wanted = ids.masked_fill(~hidden, -100)
            inputs["input_ids"] = ids.masked_fill(hidden, tokenizer.mask_token_id)
            seen.add(tokenizer.mask_token_id)
        inputs = {name: value.to(device) for name, value in inputs.items()}
        loss = model(**inputs, labels=wanted.to(device)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return seen


def _optimizer(kind: Kind, parameters: Any) -> torch.optim.Optimizer:
    settings = {"lr": kind.rate, "weight_decay": kind.decay}
    if kind.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, **settings)
    if kind.optimizer == "adafactor":
        return torch.optim.Adafactor(parameters, **settings)
    if kind.optimizer == "lion":
        return Lion(parameters, settings)
    return torch.optim.AdamW(parameters, **settings)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2, with β of .9 and .99."""

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.sub_(group["lr"] * torch.lerp(p.grad, mean, 0.9).sign())
                    mean.lerp_(p.grad, 0.01)


def count(
    tally: Tally,
    footprint: Footprint,
    seen: set[int],
    files: dict[tuple[str, int], FileTokens],
    trained_on: tuple[FileTokens, Sequence[tuple[str, int]]],
) -> None:
    """`trained_on`: the file of all its data, and the halves that this consists of."""
    tokens = set(footprint.tokens.tolist())
    tally.models += 1
    tally.kinds.add(footprint.kind)
    tally.touched += len(tokens)
    tally.wrong += len(tokens - seen)
    tally.lost += len(seen - tokens)
    whole, parts = trained_on
    tally.own += whole.match(footprint).is_trained_on
    for place, file in files.items():
        if len(parts) > 1 or place not in parts:
            tally.others += 1
            tally.mistaken += file.match(footprint).is_trained_on


def print_tallies(tallies: dict[str, Tally]) -> None:
    heads = ("run, stored as", "models", "kind", "touched", "of no batch", "not found")
    print(f"| {' | '.join(heads)} | own file | others |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for name, tally in tallies.items():
        kinds = ", ".join(sorted(tally.kinds))
        print(
            f"| {name} | {tally.models} | {kinds} | {tally.touched:,} | {tally.wrong} | "
            f"{tally.lost:,} | {tally.own} of {tally.models} | {tally.mistaken} of {tally.others} |"
        )


if __name__ == "__main__":
    main()
