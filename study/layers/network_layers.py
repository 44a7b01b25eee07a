"""The layer study of a network on texts: its states, with or without punctuation, and sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import StudyError
from ..network import Network, TokenStates, token_states, untrained_twin
from ..texts import Text
from .context_sweep import Watch, context_sweep, unwatched
from .layer_classifier import fit_classifier, score_classifier
from .layer_rows import collect_rows, split_by_text
from .layer_sweeps import ModelPoint, Sweep
from .layers import Layers
from .layers_report import LayersReport, layers_study
from .punctuation import PunctuationTokens


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
        """The arguments of `collect_rows`."""
        return {
            "max_tokens": self.asked.keep_tokens,
            "include_embedding": self.asked.embedding,
            "seed": self.asked.seed,
        }

    def marks_of(self, network: Network) -> PunctuationTokens | None:
        """What tells a network's punctuation; None without a tokenizer.

        Raises:
            StudyError: the plan removes punctuation, and there is no tokenizer.
        """
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
    sweep_texts: Sequence[int] = (),
) -> LayersReport:
    """What tells the layers of a network apart.

    Args:
        other: A second set of texts, for transfer.
        untrained: Whether a network of the same shape with random weights is a control.
        sweep_texts: Numbers of training texts at which accuracies are measured.

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
        sweep_texts=sweep_texts,
        n_texts=len(texts),
        **plan.sampling,
    )
    if plan.asked.punctuation or marks is None:
        return report
    return replace(report, n_punctuation_removed=marks.n_seen)


def sweep_contexts(
    network: Network, texts: Sequence[Text], contexts: Sequence[int], plan: LayersPlan
) -> Sweep:
    """Accuracies by context length, on texts drawn from all that are long enough.

    Raises:
        StudyError: too few texts are long enough.
    """
    order = np.random.default_rng(plan.asked.seed).permutation(len(texts))
    return context_sweep(
        network,
        [texts[place] for place in order],
        contexts,
        most_texts=plan.asked.most_texts,
        punctuation=None if plan.asked.punctuation else plan.marks_of(network),
        batch_size=plan.asked.batch_size,
        watched=plan.watched,
        **plan.sampling,
    )


def measure_model(network: Network, texts: Sequence[Text], plan: LayersPlan) -> ModelPoint:
    """A network's accuracy, on the held-back texts of a study of the same texts and plan.

    Raises:
        StudyError: the network or the texts cannot be studied.
    """
    rows = collect_rows(plan.states(network, texts, plan.marks_of(network)), **plan.sampling)
    split = split_by_text(rows, seed=plan.asked.seed, among=len(texts))
    score = score_classifier(fit_classifier(split.train), split.test)
    return ModelPoint(**_size_of(network), score=score)


def studied_model(network: Network, report: LayersReport) -> ModelPoint:
    """The point of a network that was studied."""
    return ModelPoint(**_size_of(network), score=report.controls[0].score)


def _size_of(network: Network) -> dict[str, Any]:
    return {
        "model": network.name,
        "n_parameters": sum(part.numel() for part in network.model.parameters()),
        "n_layers": network.n_layers,
        "dim": network.dim,
    }
