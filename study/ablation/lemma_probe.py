"""A network of two layers for each lemma, of which those of similar size train side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from ...arrays import Bool, Float32, Float64, Int64
from .rate_search import Labelled, Training
from .term_subsets import NONE
from .trained_probe import Rows


@dataclass(frozen=True, slots=True)
class LemmaGroup:
    """Lemmas that have about as many training items, padded to the largest.

    Attributes:
        lemmas: Their codes.
        items: The training items of each, then padding.
        n_items: How many are no padding.
    """

    lemmas: Int64[np.ndarray, " lemmas"]
    items: Int64[torch.Tensor, "lemmas items"]
    n_items: Int64[torch.Tensor, " lemmas"]


@dataclass(frozen=True, slots=True)
class LemmaRows:
    """The training items of all lemmas.

    Attributes:
        classes: The classes of each lemma, then padding (`NONE`).
        n_classes: How many are no padding.
        place: Of each training item its class's place among those of its lemma.
        groups: A group has lemmas of 2ⁿ to 2ⁿ⁺¹ − 1 items.
    """

    rows: Rows
    classes: Int64[np.ndarray, "lemmas classes"]
    n_classes: Int64[np.ndarray, " lemmas"]
    place: Int64[torch.Tensor, " items"]
    groups: tuple[LemmaGroup, ...]

    @classmethod
    def of(
        cls, data: Labelled, allowed: Bool[np.ndarray, "lemmas classes"], device: str
    ) -> LemmaRows:
        """The rows, grouped; `allowed` says which classes are each lemma's."""
        n_items = np.bincount(data.lemma, minlength=len(allowed))
        allowed = allowed & (n_items > 0)[:, None]
        n_classes = allowed.sum(axis=1)
        classes = np.full((len(allowed), n_classes.max()), NONE)
        lemma, code = np.nonzero(allowed)
        rank = np.cumsum(allowed, axis=1) - 1
        classes[lemma, rank[lemma, code]] = code
        order = np.argsort(data.lemma, kind="stable")
        starts = np.concatenate([[0], np.cumsum(n_items)])
        sizes = np.frexp(n_items)[1]
        groups = []
        for size in np.unique(sizes[n_items > 0]):
            lemmas = np.flatnonzero((sizes == size) & (n_items > 0))
            items = np.zeros((len(lemmas), n_items[lemmas].max()), dtype=np.int64)
            for row, number in zip(items, lemmas, strict=True):
                row[: n_items[number]] = order[starts[number] : starts[number + 1]]
            groups.append(
                LemmaGroup(
                    lemmas,
                    torch.from_numpy(items).to(device),
                    torch.from_numpy(n_items[lemmas]).to(device),
                )
            )
        place = torch.from_numpy(rank[data.lemma, data.codes]).to(device)
        return cls(Rows.of(data, device), classes, n_classes, place, tuple(groups))


@dataclass(slots=True)
class LemmaProbes:
    """A network dim → hidden → senses with ReLU for each lemma, in training.

    A step takes a batch of every lemma of a group. The loss is the sum over lemmas of their mean
    cross-entropies, and AdamW treats every weight on its own, so each lemma trains as if alone.
    """

    data: LemmaRows
    hidden: int
    training: Training
    learning_rate: float
    seed: int
    _networks: tuple[_Networks, ...] = field(init=False)
    _order: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        weights = torch.Generator().manual_seed(self.seed)
        dim, n_classes = self.data.rows.rows.shape[1], self.data.classes.shape[1]
        device = self.training.device
        self._networks = tuple(
            _Networks.fresh(len(group.lemmas), (dim, self.hidden, n_classes), weights, device)
            for group in self.data.groups
        )
        for networks in self._networks:
            networks.optimise_by(self.learning_rate, self.training.weight_decay)
        self._order = torch.Generator().manual_seed(self.seed)

    def train(self, epochs: int) -> None:
        """Train so many epochs more."""
        for group, networks in zip(self.data.groups, self._networks, strict=True):
            n_classes = torch.from_numpy(self.data.n_classes[group.lemmas])
            n_classes = n_classes.to(group.items.device)
            for _ in range(epochs):
                self._epoch(group, networks, n_classes)

    def _epoch(self, group: LemmaGroup, networks: _Networks, n_classes: torch.Tensor) -> None:
        """One pass over the items of each lemma, in an order of its own.

        The number of steps is that of the largest lemma; every lemma spreads its items evenly.
        """
        n_lemmas, width = group.items.shape
        keys = torch.rand((n_lemmas, width), generator=self._order).to(group.items.device)
        places = torch.arange(width, device=keys.device)
        keys = keys.masked_fill(places >= group.n_items[:, None], 2.0)
        order = keys.argsort(dim=1, stable=True)  # padding stays last
        n_steps = -(-width // self.training.batch)
        for step in range(n_steps):
            start = step * group.n_items // n_steps
            size = (step + 1) * group.n_items // n_steps - start
            within = places[: int(size.max())]
            counted = within < size[:, None]
            items = group.items.gather(1, order.gather(1, (start[:, None] + within) % width))
            scores = networks.scores(self.data.rows.rows[items], n_classes)
            losses = torch.nn.functional.cross_entropy(
                scores.flatten(0, 1), self.data.place[items].flatten(), reduction="none"
            ).view(items.shape)
            # a padding item may be another lemma's, whose class is none here: its loss is infinite
            losses = losses.masked_fill(~counted, 0.0)
            networks.step((losses.sum(dim=1) / size).sum())

    def predict(self, data: Labelled) -> Int64[np.ndarray, " items"]:
        """The class of the highest score among the lemma's; 0 for a lemma without training."""
        predicted = np.zeros(len(data.rows), dtype=np.int64)
        for items, lemmas, scores in self._scores(data):
            predicted[items] = self.data.classes[lemmas, scores.argmax(axis=1)]
        return predicted

    def quality(self, data: Labelled) -> tuple[float, float]:
        """(accuracy, minus the mean cross-entropy over items of known class)."""
        accuracy = float(np.mean(self.predict(data) == data.codes))
        losses: list[float] = []
        for items, lemmas, scores in self._scores(data):
            right = self.data.classes[lemmas] == data.codes[items, None]
            known = right.any(axis=1)
            likely = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
            losses += (-likely[known][right[known]]).tolist()
        if not losses or math.isnan(sum(losses)):
            return accuracy, -math.inf
        return accuracy, -sum(losses) / len(losses)

    def _scores(
        self, data: Labelled
    ) -> list[
        tuple[
            Int64[np.ndarray, " part"],
            Int64[np.ndarray, " part"],
            Float64[np.ndarray, "part classes"],
        ]
    ]:
        """(items, their lemmas, scores of the lemma's classes) of each lemma that was trained."""
        found = []
        for group, networks in zip(self.data.groups, self._networks, strict=True):
            for row, lemma in enumerate(group.lemmas.tolist()):
                items = np.flatnonzero(data.lemma == lemma)
                if not len(items):
                    continue
                rows = torch.from_numpy(data.rows[items]).to(self.training.device)
                scores = networks.scores_of(row, rows / self.data.rows.scale)
                shown = scores.cpu().double().numpy()
                shown[:, self.data.n_classes[lemma] :] = -np.inf
                found.append((items, np.full(len(items), lemma), shown))
        return found


@dataclass(slots=True)
class _Networks:
    """The weights of the lemmas of a group."""

    weights: tuple[torch.Tensor, ...]
    _optimiser: torch.optim.Optimizer = field(init=False)

    @classmethod
    def fresh(
        cls, n_lemmas: int, widths: tuple[int, int, int], generator: torch.Generator, device: str
    ) -> _Networks:
        """Weights and biases evenly within ±1/√inputs, as torch's linear layers start."""
        weights = []
        for inputs, outputs in ((widths[0], widths[1]), (widths[1], widths[2])):
            for shape in ((n_lemmas, inputs, outputs), (n_lemmas, 1, outputs)):
                drawn = (torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(inputs)
                weights.append(drawn.to(device).requires_grad_())
        return cls(tuple(weights))

    def optimise_by(self, learning_rate: float, weight_decay: float) -> None:
        self._optimiser = torch.optim.AdamW(
            self.weights, lr=learning_rate, weight_decay=weight_decay, fused=True
        )

    def scores(
        self,
        rows: Float32[torch.Tensor, "lemmas items dim"],
        n_classes: Int64[torch.Tensor, " lemmas"],
    ) -> Float32[torch.Tensor, "lemmas items classes"]:
        """Scores, −∞ for classes that are padding."""
        first, first_bias, second, second_bias = self.weights
        hidden = torch.relu(torch.baddbmm(first_bias, rows, first))
        scores = torch.baddbmm(second_bias, hidden, second)
        padding = torch.arange(scores.shape[2], device=rows.device) >= n_classes[:, None, None]
        return scores.masked_fill(padding, -math.inf)

    @torch.no_grad()
    def scores_of(
        self, row: int, rows: Float32[torch.Tensor, "items dim"]
    ) -> Float32[torch.Tensor, "items classes"]:
        """The scores of one lemma's items."""
        first, first_bias, second, second_bias = (weight[row] for weight in self.weights)
        scores: torch.Tensor = torch.relu(rows @ first + first_bias) @ second + second_bias
        return scores

    def step(self, loss: torch.Tensor) -> None:
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
