"""Models that need no training: full fine-tunes saved in bfloat16, merges of two of them."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .plan import SETTINGS

WEIGHTS = "model.safetensors"


def make_derived(kind: str, out: Path) -> None:
    """Write the kind's folders from the full fine-tunes that are there."""
    full = sorted(path for path in (out / "full").glob("*") if not path.name.startswith("."))
    if kind == "bfloat16":
        for path in full:
            _save(out / kind / path.name, path, _in_bfloat16(path), {"dataset": _dataset(path)})
        return
    firsts = {_dataset(path): path for path in reversed(full)}
    for (one, a), (other, b) in combinations(sorted(firsts.items()), 2):
        weights = _mean(a, b)
        _save(out / kind / f"{one}+{other}", a, weights, {"parents": [one, other]})


def _dataset(path: Path) -> str:
    return str(json.loads((path / SETTINGS).read_text("utf-8"))["texts"])


def _in_bfloat16(path: Path) -> dict[str, torch.Tensor]:
    return {name: value.bfloat16() for name, value in load_file(path / WEIGHTS).items()}


def _mean(a: Path, b: Path) -> dict[str, torch.Tensor]:
    """The mean of what both have; heads of different shape stay the first's."""
    first, second = load_file(a / WEIGHTS), load_file(b / WEIGHTS)
    return {
        name: (value + second[name]) / 2
        if name in second and second[name].shape == value.shape
        else value
        for name, value in first.items()
    }


def _save(
    folder: Path, like: Path, weights: dict[str, torch.Tensor], settings: dict[str, object]
) -> None:
    if (folder / SETTINGS).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(like / "config.json", folder / "config.json")
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / SETTINGS).write_text(json.dumps(settings) + "\n", "utf-8")
