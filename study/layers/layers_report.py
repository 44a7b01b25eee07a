"""The layer study of a network: its report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...errors import StudyError
from ...results import JsonRecord
from ..network import Network, TokenStates, token_states, untrained_twin
from ..texts import Text
from .layer_classifier import (
    Contributions,
    LayerClassifier,
    contributions,
    fit_classifier,
    score_classifier,
)
from .layer_controls import (
    Control,
    LayerTree,
    mask_controls,
    mask_sizes,
    punctuation_controls,
    score_split,
    simple_controls,
    transfer_controls,
    tree_control,
)
from .layer_norms import LayerNorms, LayerPca, NormTally, layer_pca
from .layer_rows import (
    MOST_TOKENS,
    TEST_SHARE,
    PunctuationTokens,
    Split,
    collect_rows,
    split_by_text,
)
from .layers import Layers

Watch = Callable[[Iterable[TokenStates], int], Iterable[TokenStates]]
"""Gets the batches of a pass and the number of its texts; gives the same batches."""


def unwatched(batches: Iterable[TokenStates], n_texts: int) -> Iterable[TokenStates]:
    return batches


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
        n_punctuation_removed: Tokens without a letter or digit that were left out of the study;
            None where they are part of it.
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
    tree: LayerTree
    n_punctuation_removed: int | None = None


def layers_study(
    states: Iterable[TokenStates],
    *,
    other: Iterable[TokenStates] | None = None,
    untrained: Iterable[TokenStates] | None = None,
    include_embedding: bool = True,
    max_tokens: int = MOST_TOKENS,
    masks: Sequence[int] | None = None,
    punctuation: PunctuationTokens | None = None,
    n_texts: int | None = None,
    seed: int = 0,
) -> LayersReport:
    """What tells the layers of a network apart. Peak: about ten times the sampled rows.

    Args:
        other: The same network on a second set of texts, for transfer.
        untrained: A network of the same shape with random weights, on the first texts.
        include_embedding: Whether layer 0 is a layer of the study.
        max_tokens: Sampled tokens of each of the three; norms are of all tokens.
        masks: Numbers of dimensions that are masked; by default 4, 32 and half of them.
        punctuation: Tells punctuation; its removal is a control, where the sample holds some.
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

    def split_like(states: Iterable[TokenStates], name: str, of_texts: int | None = None) -> Split:
        """Rows of other states, which must be of a network of the same shape."""
        others = collect(states)
        if (rows.dim, rows.layers) != (others.dim, others.layers):
            raise ValueError(
                f"{name} has {len(others.layers)} layers of {others.dim} dimensions, "
                f"the study {len(rows.layers)} of {rows.dim}"
            )
        return split_by_text(others, seed=seed, among=of_texts)

    classifier = fit_classifier(split.train)
    sizes = mask_sizes(rows.dim) if masks is None else masks
    own_score = score_classifier(classifier, split.test)
    by_tree, tree = tree_control(split, seed=seed)
    controls = [
        Control("classifier", "layer classifier", own_score, retrained=False),
        by_tree,
        *simple_controls(split, classifier, seed=seed),
        *punctuation_controls(split, classifier, punctuation),
        *mask_controls(split, classifier, sizes, seed=seed),
    ]
    if other is not None:
        controls += transfer_controls(split, split_like(other, "other"), classifier)
    if untrained is not None:
        score = score_split(split_like(untrained, "untrained", n_texts))
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
        tree=tree,
    )


def _tallied(states: Iterable[TokenStates], tally: NormTally) -> Iterator[TokenStates]:
    """The same batches; each is tallied after `collect_rows` has checked it."""
    for batch in states:
        yield batch
        tally.add(batch.hidden)


@dataclass(frozen=True, slots=True)
class LayersPlan:
    """How networks are measured: equal plans give numbers that can be compared."""

    asked: Layers
    watched: Watch = unwatched

    def states(
        self, network: Network, texts: Sequence[Text], marks: PunctuationTokens | None = None
    ) -> Iterable[TokenStates]:
        """The network's states; `marks` takes punctuation from them where the plan does.

        Texts of similar length come together, so that little of a batch is padding.
        """
        batches = token_states(
            network,
            sorted(texts, key=lambda text: len(text.text)),
            batch_size=self.asked.batch_size,
            max_tokens=self.asked.max_tokens,
        )
        watched = self.watched(batches, len(texts))
        return watched if self.asked.punctuation or marks is None else marks.removed(watched)

    @property
    def sampling(self) -> dict[str, Any]:
        return {
            "max_tokens": self.asked.keep_tokens,
            "include_embedding": self.asked.embedding,
            "seed": self.asked.seed,
        }

    def marks_of(self, network: Network) -> PunctuationTokens | None:
        """What tells a network's punctuation; None without a tokenizer."""
        if network.tokenizer is not None:
            return PunctuationTokens(network.tokenizer)
        if self.asked.punctuation:
            return None
        raise StudyError(
            f"{network.name} has no tokenizer, which tells punctuation from words; "
            "leave out --no-punctuation"
        )


def study_network(
    network: Network,
    texts: Sequence[Text],
    plan: LayersPlan,
    *,
    other: Sequence[Text] | None = None,
    untrained: bool = False,
) -> LayersReport:
    """What tells the layers of a network apart; options as of `layers_study`.

    Raises:
        StudyError: the network or the texts cannot be studied.
    """
    marks = plan.marks_of(network)
    twin = untrained_twin(network, seed=plan.asked.seed) if untrained else None
    report = layers_study(
        plan.states(network, texts, marks),
        other=plan.states(network, other, plan.marks_of(network)) if other else None,
        untrained=plan.states(twin, texts, plan.marks_of(twin)) if twin else None,
        punctuation=marks if plan.asked.punctuation else None,
        n_texts=len(texts),
        **plan.sampling,
    )
    if plan.asked.punctuation or marks is None:
        return report
    return replace(report, n_punctuation_removed=marks.n_seen)
