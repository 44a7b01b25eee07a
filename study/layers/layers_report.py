"""The layer study: norms, axes, the layer classifier and all its controls, as one report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .layer_classifier import (
    MOST_ITERATIONS,
    Contributions,
    LayerClassifier,
    contributions,
    fit_classifier,
    score_classifier,
)
from .layer_controls import (
    Control,
    mask_controls,
    mask_sizes,
    score_split,
    simple_controls,
    transfer_controls,
)
from .layer_norms import LayerNorms, NormTally
from .layer_pca import LayerPca, layer_pca
from .layer_rows import MOST_TOKENS, TEST_SHARE, LayerRows, Split, collect_rows, split_by_text

if TYPE_CHECKING:
    from ..network import TokenStates


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersReport:
    """The layers of one model on one set of texts.

    Attributes:
        n_texts: Texts in the sample.
        n_tokens: Tokens in the sample; each is a row at every layer.
        n_tokens_seen: Tokens that came by, of which the norms are.
        n_train: Rows that the classifier learned from; the controls count their own.
        n_test: Rows of held-back texts that it was scored on.
        controls: The classifier itself first.
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
    norms: LayerNorms
    pca: LayerPca
    pca_unit_norm: LayerPca
    classifier: LayerClassifier
    contributions: Contributions
    controls: tuple[Control, ...]

    @property
    def chance(self) -> float:
        return 1.0 / len(self.layers)

    def control(self, name: str) -> Control | None:
        """The control of that name; None where the study had no data for it."""
        return next((control for control in self.controls if control.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Everything but rows, axes and weights."""
        return {
            "layers": list(self.layers),
            "dim": self.dim,
            "n_texts": self.n_texts,
            "n_tokens": self.n_tokens,
            "n_tokens_seen": self.n_tokens_seen,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "test_share": self.test_share,
            "seed": self.seed,
            "chance": self.chance,
            "norms": self.norms.to_json(),
            "pca": self.pca.to_json(),
            "pca_unit_norm": self.pca_unit_norm.to_json(),
            "classifier": {
                "iterations": self.classifier.iterations,
                "converged": self.classifier.converged,
            },
            "contributions": self.contributions.to_json(),
            "controls": [control.to_json() for control in self.controls],
        }


def layers_study(
    states: Iterable[TokenStates],
    *,
    other: Iterable[TokenStates] | None = None,
    untrained: Iterable[TokenStates] | None = None,
    include_embedding: bool = True,
    max_tokens: int = MOST_TOKENS,
    masks: Sequence[int] | None = None,
    test_share: float = TEST_SHARE,
    seed: int = 0,
    max_iterations: int = MOST_ITERATIONS,
) -> LayersReport:
    """What tells the layers of a network apart. Peak: about ten times the sampled rows.

    Args:
        other: The same network on a second set of texts, for transfer.
        untrained: A network of the same shape with random weights, on the first texts.
        include_embedding: Whether layer 0 is a layer of the study.
        max_tokens: Sampled, of each of the three; norms are of all tokens.
        masks: How many dimensions are masked; 4, 32 and half of them where nothing is said.
        test_share: Of texts held back.
        seed: Of the sample, the split and the random controls.

    Raises:
        StudyError: too few texts or tokens, one layer only, or values that are not finite.
    """

    def collected(given: Iterable[TokenStates]) -> LayerRows:
        return collect_rows(
            given, max_tokens=max_tokens, include_embedding=include_embedding, seed=seed
        )

    def parted(rows: LayerRows) -> Split:
        return split_by_text(rows, test_share=test_share, seed=seed)

    tally = NormTally(first_layer=0 if include_embedding else 1)
    rows = collected(_tallied(states, tally))
    split = parted(rows)
    classifier = fit_classifier(split.train, max_iterations=max_iterations)
    sizes = mask_sizes(rows.dim) if masks is None else masks
    controls = [
        Control(
            name="classifier",
            title="layer classifier",
            score=score_classifier(classifier, split.test),
            retrained=False,
        ),
        *simple_controls(split, classifier, seed=seed, max_iterations=max_iterations),
        *mask_controls(split, classifier, sizes, seed=seed, max_iterations=max_iterations),
    ]
    if other is not None:
        theirs = parted(_of_shape(rows, collected(other), "other"))
        controls += transfer_controls(split, theirs, classifier, max_iterations=max_iterations)
    if untrained is not None:
        random = parted(_of_shape(rows, collected(untrained), "untrained"))
        score = score_split(random, max_iterations=max_iterations)
        controls.append(
            Control(name="untrained", title="untrained network", score=score, retrained=True)
        )
    return LayersReport(
        layers=rows.layers,
        dim=rows.dim,
        n_texts=rows.n_texts,
        n_tokens=rows.n_tokens,
        n_tokens_seen=rows.n_seen,
        n_train=len(split.train.layer),
        n_test=len(split.test.layer),
        test_share=test_share,
        seed=seed,
        norms=tally.result(),
        pca=layer_pca(rows),
        pca_unit_norm=layer_pca(rows, unit_norm=True),
        classifier=classifier,
        contributions=contributions(classifier),
        controls=tuple(controls),
    )


def _tallied(states: Iterable[TokenStates], tally: NormTally) -> Iterator[TokenStates]:
    """The same batches; each is tallied once it was taken, and found to be finite."""
    for batch in states:
        yield batch
        tally.add(batch.hidden)


def _of_shape(rows: LayerRows, against: LayerRows, which: str) -> LayerRows:
    """The second rows, or an error where they are of another network's shape."""
    if (rows.dim, rows.layers) != (against.dim, against.layers):
        raise ValueError(
            f"{which} has {len(against.layers)} layers of {against.dim} dimensions, "
            f"the study {len(rows.layers)} of {rows.dim}"
        )
    return against
