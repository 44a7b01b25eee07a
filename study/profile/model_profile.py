"""A model's profile on fixed texts, compared with its base, and its activation shifts.

An activation shift is the change of a fine-tune's hidden states, as a fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...arrays import Float32, Float64
from ...errors import StudyError
from ...records import Fingerprint, Recipe
from ..components import components_study
from ..components.decomposition import (
    Decomposed,
    decompose,
    decompose_streams,
    streams_of,
    token_sums,
)
from ..geometry.intrinsic_dimension import Estimator, intrinsic_dimension
from ..geometry.moments import anisotropy
from ..layers import LayerClassifier, LayerRows, collect_rows, fit_classifier, score_classifier
from ..layers.layer_classifier import contributions
from ..layers.layer_controls import norm_only, score_retrained
from ..layers.layer_norms import NormTally
from ..layers.layer_rows import split_by_text
from ..network import Network, TokenStates
from ..network.hidden_states import Batch, encoded
from ..texts import Text, Texts
from .profile import SAMPLED_TOKENS, probe_texts, profile_settings, prompt_texts

ESTIMATORS: tuple[Estimator, ...] = ("low-fifth", "facco")
ACTIVATION_SHIFT, DELTA_ACTIVATIONS = "activation-shift", "delta-activations"


@dataclass(frozen=True, slots=True)
class ProbedBase:
    """The base's numbers for every profile of its family, computed once."""

    network: Network
    terms: Float64[np.ndarray, "terms dim"]
    prompts: Float64[np.ndarray, " dim"]
    classifier: LayerClassifier


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's document, in JSON's types, and its shifts above 0, each with its own recipe."""

    document: dict[str, Any]
    fingerprints: tuple[Fingerprint, ...]


def probe_base(network: Network) -> ProbedBase:
    """Run the base over the probe; a `StudyError` where it cannot be."""
    _require_tokenizer(network)
    probed = _Probed(network)
    streams = streams_of(network)
    for batch in encoded(network, probe_texts().entries):
        probed.see(batch, decompose_streams(streams, batch))
    return ProbedBase(
        network,
        probed.mean_terms(),
        last_token_mean(network, prompt_texts().entries),
        fit_classifier(probed.rows()),
    )


def profile_model(network: Network, base: ProbedBase, *, loading_s: float = 0.0) -> Profile:
    """Run a model over the probe and compare it with its base; the document has the seconds.

    Every part reads one pass of the model over the probe; the base runs over it once, for the
    components, and over nothing else.

    Raises:
        StudyError: it cannot be run over it, or is not built like the base.
    """
    _require_tokenizer(network)
    times = [time.perf_counter()]
    probed = _Probed(network)
    components = components_study(
        network, probe_texts().entries, against=base.network, observe=probed.see
    )
    times.append(time.perf_counter())
    fingerprints, shift = _shifts(network, probed.mean_terms(), base)
    times.append(time.perf_counter())
    geometry = _geometry(probed.states)
    times.append(time.perf_counter())
    layers = _layers(probed.rows(), base.classifier)
    times.append(time.perf_counter())
    seconds = [loading_s, *np.diff(times).tolist()]
    steps = ("loading", "components", "activation shifts", "geometry", "layers")
    document = {
        "model": network.name,
        "base": base.network.name,
        "settings": profile_settings(),
        "n_layers": network.n_layers,
        "dim": network.dim,
        "components": components.to_json(),
        "activation_shift": shift,
        "geometry": geometry,
        "layers": layers,
        "recipes": [fingerprint.recipe.name for fingerprint in fingerprints],
        "seconds": {step: round(s, 3) for step, s in zip(steps, seconds, strict=True)},
    }
    return Profile(document, tuple(fingerprints))


@dataclass(slots=True)
class _Probed:
    """What the parts of a profile read of one pass over the probe; `states` are of the raw stream
    of the network's first stack, batch by batch."""

    network: Network
    states: list[TokenStates] = field(default_factory=list)
    _terms: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    _count: int = 0

    def see(self, batch: Batch, streams: Sequence[Sequence[Decomposed]]) -> None:
        """Take one batch: the first stack's states, and the last stack's (a decoder's) last terms;
        special tokens and first positions are left out."""
        if not batch.counted.any():
            return
        states = batch.states([layer.hidden for layer in streams[0] if not layer.normed])
        self.states.append(states)
        last = streams[-1][-1].terms.transpose(1, 2)
        self._terms = self._terms + token_sums(last).cpu()
        self._count += len(states.text)

    def mean_terms(self) -> Float64[np.ndarray, "terms dim"]:
        """The mean token at the last layer, term by term, after any final norm."""
        if not self._count:
            raise StudyError(f"{self.network.name}: the texts leave no token to study")
        means: Float64[np.ndarray, "terms dim"] = self._terms.numpy() / self._count
        return means

    def rows(self) -> LayerRows:
        return collect_rows(self.states, max_tokens=SAMPLED_TOKENS)


def _shifts(
    network: Network, tuned: Float64[np.ndarray, "terms dim"], base: ProbedBase
) -> tuple[list[Fingerprint], dict[str, Any]]:
    texts, prompts = probe_texts(), prompt_texts()
    names = network.stacks[-1].terms
    fingerprints = [
        shift_fingerprint(ACTIVATION_SHIFT, texts, tuned.sum(axis=0), base.terms.sum(axis=0)),
        *(
            shift_fingerprint(f"{ACTIVATION_SHIFT}.{term}", texts, *means)
            for term, *means in zip(names, tuned, base.terms, strict=True)
        ),
        shift_fingerprint(
            DELTA_ACTIVATIONS, prompts, last_token_mean(network, prompts.entries), base.prompts
        ),
    ]
    moved = tuned - base.terms
    return [fingerprint for fingerprint in fingerprints if fingerprint is not None], {
        "length": float(np.linalg.norm(moved.sum(axis=0))),
        "by_term": dict(zip(names, np.linalg.norm(moved, axis=1).tolist(), strict=True)),
    }


def last_token_mean(network: Network, texts: Sequence[Text]) -> Float64[np.ndarray, " dim"]:
    """The mean over texts of the last token's state at the last layer, special or not."""
    stack = network.stacks[-1]
    total = np.zeros(network.dim)
    for batch in encoded(
        network, texts, batch_size=8, max_tokens=512, keep_special=True, keep_first=True
    ):
        last = decompose(network, stack, batch, {})[-1].hidden
        ends = batch.mask.sum(dim=1) - 1
        rows = torch.arange(len(ends), device=last.device)
        total += token_sums(last[rows, ends].T).cpu().numpy()
    return total / len(texts)


def shift_fingerprint(
    name: str, texts: Texts, tuned: Float64[np.ndarray, " dim"], base: Float64[np.ndarray, " dim"]
) -> Fingerprint | None:
    """The shift over these texts as a unit vector; None where only rounding differs."""
    shift = tuned - base
    norm = float(np.linalg.norm(shift))
    if norm <= 1e-6 * float(np.linalg.norm(base)):
        return None
    vector: Float32[np.ndarray, " dim"] = (shift / norm).astype(np.float32)
    vector.flags.writeable = False
    recipe = Recipe(name=name, rank=0, dim=len(shift), params=(("probe", texts.digest),))
    return Fingerprint(recipe=recipe, vector=vector, norm=norm)


def _geometry(batches: Sequence[TokenStates]) -> dict[str, Any]:
    norms = NormTally()
    for batch in batches:
        norms.add(batch.hidden)
    hidden = np.concatenate([batch.hidden for batch in batches], axis=1)
    clouds = [anisotropy(layer) for layer in hidden]
    dimensions = [intrinsic_dimension(layer, estimators=ESTIMATORS) for layer in hidden]
    return {
        "tokens": hidden.shape[1],
        "anisotropy_centred": [cloud.centred for cloud in clouds],
        "anisotropy_uncentred": [cloud.uncentred for cloud in clouds],
        "mean_cosine": [cloud.mean_cosine for cloud in clouds],
        "intrinsic_dimension": {
            name: [
                next(answer.dimension for answer in layer if answer.estimator == name)
                for layer in dimensions
            ]
            for name in ESTIMATORS
        },
        "norms": norms.result().to_json(),
    }


def _layers(rows: LayerRows, base: LayerClassifier) -> dict[str, Any]:
    """The accuracy of a classifier of layers, and that of the base's classifier on this model."""
    split = split_by_text(rows)
    classifier = fit_classifier(split.train)
    score = score_classifier(classifier, split.test)
    by_norm = score_retrained(split, norm_only)
    drift = score_classifier(base, rows)
    spread = contributions(classifier)
    return {
        "accuracy": score.accuracy,
        "norm_only": by_norm.accuracy,
        "chance": score.chance,
        "n50": list(spread.n50),
        "n90": list(spread.n90),
        "base_classifier": drift.accuracy,
        "base_classifier_recall": list(drift.recall),
    }


def _require_tokenizer(network: Network) -> None:
    if network.tokenizer is None:
        raise StudyError(
            f"{network.name} has no tokenizer: a profile runs it over fixed texts; "
            "give a base that has one"
        )
