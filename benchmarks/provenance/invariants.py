"""What `trace` says of transformed models, and how often it takes a decoy for the base's.

    python -m benchmarks.provenance.invariants FAMILY... [--decoys 500] [--only NAME ...]

FAMILY is a folder of `transformed_models.py`. Every case is written, traced and deleted; the known
bases are all families' bases, and their `fresh` and `twin` models, which have the same config. A
row a case: whether the base, the layer map and the changes are right, the largest p, what was read.
Then decoys, with the bases alone known: those of `decoys`, and `--decoys` more of each family, of
entries shuffled or drawn anew, half of them on the base's embeddings.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import deltadex as dx
from deltadex.indexer import RowBlock, TensorRef, place
from deltadex.provenance.bases.base_invariants import make_invariants
from deltadex.provenance.bases.invariants import find_transformation
from deltadex.provenance.bases.model_rows import ModelRows, OpenedWeights

from .transformations import (
    Model,
    State,
    cases,
    decoys,
    embeddings_on,
    permute_residual,
    shuffle,
    write_model,
)
from .transformed_models import read_family

KINDS = ("whole", "row", "column", "row-order", "column-order", "drawn", "twin-rows")
CHANCE = (1e-2, 1e-4, 1e-6)


def traced(db: Any, model: Model, base: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_model(model, Path(folder) / "model", base)
        answer: dict[str, Any] = db.trace(str(Path(folder) / "model")).to_json()
    return answer


def print_cases(db: Any, family: Path, only: Sequence[str]) -> Counter[str]:
    """A line a case; how many there are, and of how many each part of the answer is right."""
    base, tuned, _, _ = read_family(family)
    counts: Counter[str] = Counter()
    print("case | base | layers | changes | p | read, of all | said")
    for name, case, changed in cases(base, tuned):
        if only and name not in only:
            continue
        answer = traced(db, changed, family / "base")
        said = "; ".join(answer["changes"])
        right = {
            "base": answer["base"] == str((family / "base").resolve()),
            "layers": [pair[1] for pair in answer["layers"]]
            == list(case.order or range(base.layers)),
            "changes": all(change in said for change in case.changes),
        }
        counts.update(["cases", *(part for part, is_so in right.items() if is_so)])
        share = answer["bytes_read"] / answer["bytes_total"]
        marks = " | ".join("yes" if is_so else "NO" for is_so in right.values())
        p = "–" if answer["p"] is None else f"{answer['p']:.0e}"
        read = f"{answer['bytes_read'] / 1e3:.0f} kB, {share:.2%}"
        print(f"{name} | {marks} | {p} | {read} | {answer['verdict']}: {said}", flush=True)
    return counts


def drawn(model: Model, seed: int) -> Model:
    """Gaussian entries with each matrix's own mean and deviation; vectors stay."""
    generator = torch.Generator().manual_seed(seed)
    return model.with_state(
        {
            name: t.mean() + t.std() * torch.randn(t.shape, generator=generator)
            for name, t in model.state.items()
            if t.ndim == 2
        }
    )


def many_decoys(base: Model, twin: Model, n: int) -> Iterator[tuple[str, Model]]:
    for seed in range(n):
        kind = KINDS[seed // 2 % len(KINDS)]
        if kind == "drawn":
            decoy = drawn(base, seed)
        elif kind == "twin-rows":
            decoy = shuffle(twin, by="row-order", seed=seed)
        else:
            decoy = shuffle(base, by=kind, seed=seed)
        if seed % 2:
            decoy = embeddings_on(decoy, base)
            yield f"{kind}, embeddings kept", decoy if seed % 4 == 1 else permute_residual(decoy)
        else:
            yield kind, decoy


@dataclass(frozen=True)
class InMemory:
    """A model's tensors as a checkpoint of which rows are read."""

    state: State
    concurrent: bool = True

    @property
    def tensors(self) -> dict[str, TensorRef]:
        return {
            name: TensorRef(
                name=name, dtype="F32", shape=tuple(t.shape), file="", start=0, stop=t.nbytes
            )
            for name, t in self.state.items()
        }

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        for block in blocks:
            tensor = self.state[block.tensor]
            yield block, tensor.reshape(-1, tensor.shape[-1])[block.start : block.stop]


def rows_of(model: Model) -> ModelRows:
    shapes = {name: tuple(t.shape) for name, t in model.state.items()}
    return ModelRows(OpenedWeights(InMemory(model.state), place(shapes, model.config)))


def print_decoys(db: Any, family: Path, n: int) -> None:
    """Decoys that are traced, and more of them beside the base's invariants alone, of which any
    number of bytes may be read."""
    base, _, fresh, twin = read_family(family)
    for name, decoy in decoys(base, fresh, twin).items():
        answer = traced(db, decoy, family / "base")
        print(f"{name} | {answer['base'] or 'unknown'} | p {answer['p']:.2g} | {answer['reason']}")
    invariants = make_invariants(rows_of(base))
    shown: Counter[str] = Counter()
    ps = []
    for kind, decoy in many_decoys(base, twin, n):
        answer = find_transformation(rows_of(decoy), invariants)
        shown[kind] += answer is not None and answer.descends
        ps.append(1.0 if answer is None else answer.p)
    counts = ", ".join(f"p ≤ {c:g}: {sum(p <= c for p in ps)}" for c in CHANCE)
    false = ", ".join(f"{kind} {count}" for kind, count in shown.items() if count) or "none"
    print(f"{family.name}: false positives of {n} more decoys: {false}; {counts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", type=Path, nargs="+")
    parser.add_argument("--decoys", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=())
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seeds 0 to 8; {platform.processor() or platform.machine()}, one thread")
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, dx.open(f"{folder}/cases.duckdb") as db:
        for family in options.families:
            db.known_bases.add(*(str(family / name) for name in ("base", "fresh", "twin")))
        for family in options.families:
            total += print_cases(db, family, options.only)
    print(", ".join(f"{part}: {n} of {total['cases']}" for part, n in total.items()))
    with tempfile.TemporaryDirectory() as folder, dx.open(f"{folder}/decoys.duckdb") as db:
        db.known_bases.add(*(str(family / "base") for family in options.families))
        for family in options.families if options.decoys else ():
            print_decoys(db, family, options.decoys)


if __name__ == "__main__":
    main()
