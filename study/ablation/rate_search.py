"""How probes are trained: runs, and a learning rate by successive halving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from ...arrays import Float32, Int64
from ..report_json import JsonRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(JsonRecord):
    """How probes are trained: AdamW, cross-entropy, a fixed number of epochs.

    Attributes:
        learning_rates: Of which each subset takes one, by the validation items (`train_runs`).
        runs: Trainings that differ in initial weights and in the order of items.
        seed: Of the first run; all subsets of a run start from the same weights.
        device: The device of torch.
    """

    epochs: int = 20
    batch: int = 256
    learning_rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2)
    weight_decay: float = 0.01
    runs: int = 3
    seed: int = 0
    device: str = field(default="cpu", repr=False)

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.runs) < 1:
            raise ValueError(
                f"epochs, batch and runs must be at least 1, "
                f"got {self.epochs}, {self.batch}, {self.runs}"
            )
        if not self.learning_rates or min(self.learning_rates) <= 0 or self.weight_decay < 0:
            raise ValueError(
                "learning_rates must be positive and weight_decay not negative, "
                f"got {self.learning_rates}, {self.weight_decay}"
            )

    def settings(self) -> dict[str, object]:
        """Everything that is needed to train again, for JSON."""
        return {"optimiser": "AdamW"} | self.to_json()


@dataclass(frozen=True, slots=True)
class Labelled:
    """Rows and their class codes.

    Attributes:
        codes: `NONE` for a class that the probe does not have.
        lemma: The code of each row's lemma; zeros where classes do not depend on it.
    """

    rows: Float32[np.ndarray, "items dim"]
    codes: Int64[np.ndarray, " items"]
    lemma: Int64[np.ndarray, " items"]

    def part(self, items: Int64[np.ndarray, " part"]) -> Labelled:
        """Some of the items."""
        return Labelled(self.rows[items], self.codes[items], self.lemma[items])


@runtime_checkable
class Trainee(Protocol):
    """A probe in training."""

    def train(self, epochs: int) -> None:
        """Train so many epochs more."""

    def predict(self, data: Labelled) -> Int64[np.ndarray, " items"]:
        """The class of each item; its code is not read."""

    def quality(self, data: Labelled) -> tuple[float, float]:
        """(accuracy, minus the mean cross-entropy over items of known class)."""


Probe = TypeVar("Probe", bound=Trainee)

Start: TypeAlias = Callable[[float, int], Probe]
"""A probe that is not trained yet, of a learning rate and a seed."""


def train_runs(
    start: Start[Probe], validation: Labelled, training: Training
) -> tuple[list[Probe], float]:
    """A trained probe for each run, and the learning rate that was chosen.

    The rate is chosen with the first run's seed by successive halving (Jamieson & Talwalkar 2016):
    all rates train for a share of the epochs, the better half of them twice as long, until one is
    left, which trains to the end. Better is a higher accuracy on the validation items, then a
    lower cross-entropy, then an earlier place in the list.
    Cost for 4 rates: as 2 trainings, and 1 for each further run.
    """
    probes = {rate: start(rate, training.seed) for rate in dict.fromkeys(training.learning_rates)}
    trained = 0
    for n_left, epochs in _rungs(len(probes), training.epochs):
        for probe in probes.values():
            probe.train(epochs - trained)
        trained = epochs
        if n_left < len(probes):
            ranks = {rate: probe.quality(validation) for rate, probe in probes.items()}
            best = sorted(probes, key=lambda rate: ranks[rate], reverse=True)[:n_left]
            probes = {rate: probes[rate] for rate in probes if rate in best}
    ((rate, first),) = probes.items()
    rest = []
    for run in range(1, training.runs):
        probe = start(rate, training.seed + run)
        probe.train(training.epochs)
        rest.append(probe)
    return [first, *rest], rate


def _rungs(n_rates: int, epochs: int) -> Iterator[tuple[int, int]]:
    """(rates that stay, epochs until then), up to one rate and all epochs."""
    n_rounds = (n_rates - 1).bit_length()
    for left in range(n_rounds, -1, -1):
        n_rates = -(-n_rates // 2) if left else 1
        yield n_rates, -(-epochs // 2**left)
