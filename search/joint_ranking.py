"""One ranking of the models of several families, each asked with its own loss and calibration.

z of two families have different scales; calibrated probabilities have one. A model stands where
the lowest probability down to it in its own family puts it, so that every family keeps its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .evidence import verdict
from .family_scores import TIE_DECIMALS
from .neighbours import with_rates
from .trained_on import TrainedModel, TrainedModels


def judge_jointly(answers: Sequence[TrainedModels]) -> list[TrainedModels]:
    """The answers of several families to one data set, with the verdicts that so many together
    allow; families without a calibration have none, and do not count."""
    n = sum(answer.calibration.source != "the null alone" for answer in answers)
    judged = []
    for answer in answers:
        known = answer.calibration.among(n)
        models = (
            replace(model, verdict=verdict(False, model.probability, known.bound))
            for model in answer.models
        )
        judged.append(replace(answer, calibration=known, models=tuple(models)))
    return judged


def rank_jointly(answers: Sequence[TrainedModels], k: int) -> tuple[TrainedModel, ...]:
    """The `k` models most likely trained on the data, of all families; ties by z. Models of
    families that are too small for a probability come last, by z.

    The rate of a row is the mean of 1 − probability down to it, of one without a probability that
    of its own family; it never falls as one goes down.
    """
    placed: list[tuple[tuple[float, float, str, int], TrainedModel]] = []
    for answer in answers:
        lowest = 1.0
        for model in answer.models:
            lowest = min(lowest, -1.0 if model.probability is None else model.probability)
            key = round(-lowest, TIE_DECIMALS), round(-model.z, TIE_DECIMALS)
            placed.append(((*key, model.base, model.rank), model))
    placed.sort(key=lambda entry: entry[0])
    return tuple(with_rates([model for _, model in placed[:k]]))
