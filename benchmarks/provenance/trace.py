"""Which base `trace` finds for transformed models, and how often it names one for decoys.

    python -m benchmarks.provenance.trace FAMILY... [--real FOLDER]

FAMILY is a folder of `transformed_models.py` (base, fresh, twin, tuned). Every case and every decoy
is written, traced and deleted. Of cases the known bases are the base, `fresh` and `twin` of every
family, which have the same config; of decoys the bases alone. FOLDER has real fine-tunes of the
first family's base; --each applies every case to so many of them. Prints a row a transformation,
then false positives of decoys that are made of the sampled runs alone: entries shuffled, Gaussian
ones of the same size, runs at wrong places.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import deltadex as dx
from deltadex.indexer import MatrixSample, find_layer_map
from deltadex.provenance.bases.opened_model import open_model

from .transformations import CASES, Model, cases, decoys, read_model, write_model
from .transformed_models import read_family

SEED = 0
CHANCE = (1e-2, 1e-3, 1e-6)
"""How often p is at most this for decoys."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One traced model: the base that is right (None for a decoy), its layers, and the answer."""

    kind: str
    base: str | None
    order: Sequence[int] | None
    answer: dict[str, Any]

    @property
    def is_right(self) -> bool:
        return bool(self.answer["base"] == self.base)

    @property
    def has_layers(self) -> bool:
        order = self.answer["layers"] and [base for _, base in self.answer["layers"]]
        return self.order is None or order == list(self.order)


def traced(db: Any, model: Model, base: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model"
        write_model(model, target, base)
        answer: dict[str, Any] = db.trace(str(target)).to_json()
    return answer


def trials_of_family(db: Any, alone: Any, family: Path) -> Iterator[Trial]:
    base, tuned, fresh, twin = read_family(family)
    name = str((family / "base").resolve())
    for kind, case, changed in cases(base, tuned):
        order = case.order or range(base.layers)
        yield Trial(kind, name, order, traced(db, changed, family / "base"))
    for kind, decoy in decoys(base, fresh, twin).items():
        yield Trial(f"decoy: {kind}", None, None, traced(alone, decoy, family / "base"))


def trials_of_fine_tune(db: Any, folder: Path, family: Path) -> Iterator[Trial]:
    """Every case, made from a real fine-tune of a family's base."""
    tuned = read_model(folder)
    for kind, case in CASES.items():
        if case.rms <= tuned.names.rotary:
            order = case.order or range(tuned.layers)
            answer = traced(db, case.apply(tuned), family / "base")
            yield Trial(kind, str((family / "base").resolve()), order, answer)


def trials_of_runs(
    base: Sequence[MatrixSample], n_trials: int, *, among: int
) -> Iterator[tuple[str, float]]:
    """p of decoys that are made of a base's runs."""
    rng = np.random.default_rng(SEED)
    for _ in range(n_trials):
        yield (
            "entries shuffled",
            _p([_with(m, rng.permutation(m.values)) for m in base], base, among),
        )
        drawn = [
            _with(m, rng.normal(0, m.values.std(), len(m.values)).astype(np.float32)) for m in base
        ]
        yield "fresh initialisation", _p(drawn, base, among)
        turned = [_with(m, np.roll(m.values, int(rng.integers(1, len(m.values))))) for m in base]
        yield "entries moved along the run", _p(turned, base, among)


def _with(matrix: MatrixSample, values: np.ndarray[Any, Any]) -> MatrixSample:
    return replace(matrix, values=values)


def _p(child: Sequence[MatrixSample], base: Sequence[MatrixSample], among: int) -> float:
    found = find_layer_map(child, base, among=among)
    return 1.0 if found is None else found.p


def print_trials(trials: Sequence[Trial]) -> None:
    rows: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        rows[trial.kind].append(trial)
    print("model | n | base right | layers right | verdicts | changes | bytes read, of all")
    for kind, group in rows.items():
        verdicts = sorted({t.answer["verdict"] for t in group})
        changes = sorted({"; ".join(t.answer["changes"]) for t in group})
        right = sum(trial.is_right for trial in group)
        layers = sum(trial.has_layers for trial in group)
        read = max(t.answer["bytes_read"] for t in group)
        share = max(t.answer["bytes_read"] / t.answer["bytes_total"] for t in group)
        print(
            f"{kind} | {len(group)} | {right} | {layers} | {', '.join(verdicts)} | "
            f"{' / '.join(changes)} | {read / 1e3:.0f} kB, {share:.2%}",
            flush=True,
        )
    real = [t for t in trials if t.base is not None]
    print(f"top-1: {sum(t.is_right for t in real)} of {len(real)}")
    false = [t for t in trials if t.base is None and t.answer["base"] is not None]
    print(f"decoys with a base: {len(false)} of {len(trials) - len(real)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", type=Path, nargs="+")
    parser.add_argument("--real", type=Path, help="folders of real fine-tunes, at any depth")
    parser.add_argument("--each", type=int, default=0, help="real fine-tunes that are transformed")
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {SEED}; {platform.processor() or platform.machine()}, one thread")
    with dx.open() as db, dx.open() as alone:
        for family in options.families:
            db.known_bases.add(*(family / name for name in ("base", "fresh", "twin")))
            alone.known_bases.add(family / "base")
        trials = [t for family in options.families for t in trials_of_family(db, alone, family)]
        first = options.families[0]
        configs = sorted(options.real.rglob("config.json")) if options.real else []
        for config in configs:
            answer = db.trace(str(config.parent)).to_json()
            base = str((first / "base").resolve())
            trials.append(Trial("fine-tunes, real", base, None, answer))
        for config in configs[:: max(1, len(configs) // max(1, options.each))][: options.each]:
            trials += trials_of_fine_tune(db, config.parent, first)
        print_trials(trials)
    among = 3 * len(options.families)
    for family in options.families:
        with open_model(str(family / "base")) as opened:
            base = opened.samples
        ps: dict[str, list[float]] = defaultdict(list)
        for kind, p in trials_of_runs(base, options.trials, among=among):
            ps[kind].append(p)
        for kind, values in ps.items():
            counts = ", ".join(f"p ≤ {c:g}: {sum(p <= c for p in values)}" for c in CHANCE)
            print(f"{family.name}, {kind}: n {len(values)}; {counts}")


if __name__ == "__main__":
    main()
