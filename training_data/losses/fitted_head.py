"""Classes and numbers: a head is fitted on the frozen base, then its loss is differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ...arrays import Float32
from ...records import LossName
from ...study.network import TaskModel
from ..examples.example import Example
from .loss import EncodedExample, tokens_of
from .pooled_states import pooled_states

PENALTY = 0.01
"""Of the squared weights of a head over states of unit variance. Without it a few hundred examples
are fitted without error, and nothing is left for the base to learn."""

ROUNDS = 200


@dataclass(slots=True)
class FittedHeadLoss:
    """Cross-entropy of classes, or squared error of numbers, by a linear head of its own.

    Attributes:
        classes: Their names, in order; none of a regression.
    """

    model: TaskModel
    max_tokens: int
    name: LossName
    classes: tuple[str, ...] = ()
    needs_dropout: bool = False
    _weights: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    _bias: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """Those that have a label."""
        place = {name: number for number, name in enumerate(self.classes)}
        encoded = []
        for example in examples:
            if example.label is None:
                continue
            ids, types, _ = tokens_of(self.model, example, self.max_tokens)
            label = example.label
            value = float(place[str(label)]) if self.classes else float(label)
            encoded.append(EncodedExample(ids=ids, types=types, value=value))
        return encoded

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int) -> None:
        """Fit the head on all examples, states as the frozen base has them."""
        order = sorted(range(len(encoded)), key=lambda row: len(encoded[row].ids))
        states: list[torch.Tensor] = [torch.zeros(0)] * len(encoded)
        with torch.no_grad():
            for first in range(0, len(order), batch_size):
                rows = order[first : first + batch_size]
                pooled = pooled_states(self.model, [encoded[row] for row in rows])
                for row, state in zip(rows, pooled.float().cpu(), strict=True):
                    states[row] = state
        values = torch.tensor([example.value for example in encoded])
        weights, bias = fit_head(torch.stack(states), values, len(self.classes))
        self._weights, self._bias = weights.to(self.model.device), bias.to(self.model.device)

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum over texts, and how many."""
        outputs = pooled_states(self.model, batch).float() @ self._weights.T + self._bias
        values = torch.tensor([example.value for example in batch], device=self.model.device)
        if self.classes:
            loss = torch.nn.functional.cross_entropy(outputs, values.long(), reduction="sum")
        else:
            loss = (outputs[:, 0] - values).square().sum()
        return loss, len(batch)


def fit_head(
    states: Float32[torch.Tensor, "texts dim"],
    values: Float32[torch.Tensor, " texts"],
    n_classes: int,
) -> tuple[Float32[torch.Tensor, "outputs dim"], Float32[torch.Tensor, " outputs"]]:
    """Weights and bias of the head that minimises the mean loss and `PENALTY` × |weights|².

    Numbers are fitted in units of their standard deviation. Deterministic: L-BFGS from zeros.
    """
    wide = states.double()
    centre = wide.mean(dim=0)
    scale = (wide - centre).square().mean().sqrt().clamp(min=1e-12)
    inputs = (wide - centre) / scale
    n_outputs = n_classes or 1
    weights = torch.zeros(n_outputs, wide.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(n_outputs, dtype=torch.float64, requires_grad=True)
    middle, spread = values.double().mean(), values.double().std().clamp(min=1e-12)
    wanted = values.long() if n_classes else (values.double() - middle) / spread
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        outputs = inputs @ weights.T + bias
        if n_classes:
            loss = torch.nn.functional.cross_entropy(outputs, wanted)
        else:
            loss = (outputs[:, 0] - wanted).square().mean()
        loss = loss + PENALTY * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    fitted = weights.detach() / scale
    shift = bias.detach() - fitted @ centre
    if not n_classes:
        fitted, shift = fitted * spread, shift * spread + middle
    return fitted.float(), shift.float()
