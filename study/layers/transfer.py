"""Layer classifiers on texts of another kind than they were trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .classifier import MOST_ITERATIONS, LayerClassifier, fit_classifier, score_classifier
from .controls import Control
from .rows import LayerRows, Split


def transfer_controls(
    here: Split, other: Split, classifier: LayerClassifier, *, max_iterations: int = MOST_ITERATIONS
) -> Iterator[Control]:
    """Both ways, within the other texts, and trained on both; always on held-back texts.

    Every classifier standardises with what it stored in training. Refitting that to the new
    texts, or leaving it out, measures something else.
    """
    theirs = fit_classifier(other.train, max_iterations=max_iterations)
    both = fit_classifier(joined(here.train, other.train), max_iterations=max_iterations)
    for name, title, trained, test in (
        ("transfer-to-other", "these texts → other", classifier, other.test),
        ("transfer-from-other", "other texts → these", theirs, here.test),
        ("other-in-domain", "other texts → other", theirs, other.test),
        ("mixed-here", "both texts → these", both, here.test),
        ("mixed-other", "both texts → other", both, other.test),
    ):
        score = score_classifier(trained, test)
        yield Control(name=name, title=title, score=score, retrained=trained is not classifier)


def joined(here: LayerRows, other: LayerRows) -> LayerRows:
    """All rows of both; texts of the other are numbered after these."""
    if here.dim != other.dim or here.layers != other.layers:
        raise ValueError(
            f"rows of {here.dim} dimensions and layers {here.layers} do not join rows of "
            f"{other.dim} and layers {other.layers}"
        )
    shifted = replace(other, text=other.text + int(here.text.max()) + 1)
    pairs = {
        name: np.concatenate([getattr(here, name), getattr(shifted, name)])
        for name in ("vectors", "layer", "text", "position", "token")
    }
    return LayerRows(**pairs, n_seen=here.n_seen + other.n_seen)
