"""The layer study of a network: its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...results import JsonRecord
from .layer_classifier import (
    Contributions,
    LayerClassifier,
    contributions,
    fit_classifier,
    score_classifier,
)
from .layer_controls import Control, mask_controls, score_split, simple_controls, transfer_controls
from .layer_norms import LayerNorms, LayerPca, NormTally, layer_pca
from .layer_rows import MOST_TOKENS, TEST_SHARE, collect_rows, split_by_text

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport(JsonRecord):
    """The layers of one model on one set of texts.

    Attributes:
        n_texts, n_tokens: In the sample; each token is a row at every layer.
        n_tokens_seen: All tokens; the norms are of these.
        n_train: Training rows of the classifier; the controls count their own.
        n_test: Rows of held-back texts.
        chance: 1 / layers.
        controls: The first is the classifier itself.
    """

    layers: tuple[int, ...]
    dim: int
    n_texts: int
    n_tokens: int
    n_tokens_seen: int
    n_train: int
    n_test: int
    test_share: float
    seed: int
    chance: float
    norms: LayerNorms
    pca: LayerPca
    pca_unit_norm: LayerPca
    classifier: LayerClassifier
    contributions: Contributions
    controls: tuple[Control, ...]


def layers_study(
    states: Iterable[TokenStates],
    *,
    other: Iterable[TokenStates] | None = None,
    untrained: Iterable[TokenStates] | None = None,
    include_embedding: bool = True,
    max_tokens: int = MOST_TOKENS,
    n_texts: int | None = None,
    seed: int = 0,
) -> LayersReport:
    """What tells the layers of a network apart. Peak: about ten times the sampled rows.

    Args:
        other: The same network on a second set of texts, for transfer.
        untrained: A network of the same shape with random weights, on the first texts.
        include_embedding: Whether layer 0 is a layer of the study.
        max_tokens: Sampled tokens of each of the three; norms are of all tokens.
        n_texts: How many texts the states are of; studies of equally many hold back the same.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """
    collect = partial(
        collect_rows, max_tokens=max_tokens, include_embedding=include_embedding, seed=seed
    )
    tally = NormTally(first_layer=0 if include_embedding else 1)
    rows = collect(_tallied(states, tally))
    split = split_by_text(rows, seed=seed, among=n_texts)
    classifier = fit_classifier(split.train)
    own_score = score_classifier(classifier, split.test)
    controls = [
        Control("classifier", "layer classifier", own_score, retrained=False),
        *simple_controls(split, classifier, seed=seed),
        *mask_controls(split, classifier, seed=seed),
    ]
    if other is not None:
        moved = split_by_text(collect(other), seed=seed)
        controls += transfer_controls(split, moved, classifier)
    if untrained is not None:
        score = score_split(split_by_text(collect(untrained), seed=seed, among=n_texts))
        controls.append(Control("untrained", "untrained network", score, retrained=True))
    return LayersReport(
        layers=rows.layers,
        dim=rows.dim,
        n_texts=rows.n_texts,
        n_tokens=rows.n_tokens,
        n_tokens_seen=rows.n_seen,
        n_train=len(split.train.layer),
        n_test=len(split.test.layer),
        test_share=TEST_SHARE,
        seed=seed,
        chance=1.0 / len(rows.layers),
        norms=tally.result(),
        pca=layer_pca(rows),
        pca_unit_norm=layer_pca(rows, unit_norm=True),
        classifier=classifier,
        contributions=contributions(classifier),
        controls=tuple(controls),
    )


def _tallied(states: Iterable[TokenStates], tally: NormTally) -> Iterator[TokenStates]:
    """The same batches; each is tallied after `collect_rows` has checked it."""
    for batch in states:
        yield batch
        tally.add(batch.hidden)
