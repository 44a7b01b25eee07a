"""Occurrences of words in their senses, coded and split: what every measure of senses works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Bool, Float32, Int64
from ...errors import StudyError
from .subset_results import Keep, SubsetResult, chosen_rates
from .term_subsets import (
    NONE,
    Subset,
    SubsetPredictions,
    check_terms,
    codes_of,
    commonest,
    term_subsets,
)
from .text_split import Split, check_split

WHAT = "word senses"


@dataclass(frozen=True, slots=True)
class SenseData:
    """The occurrences, with codes in place of names.

    Attributes:
        sense: A code is of one sense of one lemma.
        split: Without the lemmas of one sense.
        n_dropped: Occurrences of lemmas with one sense.
    """

    lemma: Int64[np.ndarray, " words"]
    sense: Int64[np.ndarray, " words"]
    text: Int64[np.ndarray, " words"]
    split: Split
    n_dropped: int

    @classmethod
    def of(
        cls,
        lemma: Sequence[str],
        sense: Sequence[str],
        *,
        text: Int64[np.ndarray, " words"] | None,
        split: Split | None,
        split_seed: int,
        shares: tuple[float, float, float],
        validation: bool,
    ) -> SenseData:
        """Codes in order of appearance.

        Raises:
            StudyError: no lemma with two senses, or an empty part of the split.
        """
        lemmas, senses = _codes(lemma), _codes(list(zip(lemma, sense, strict=True)))
        first_of_sense = np.unique(senses, return_index=True)[1]
        polysemous = np.bincount(lemmas[first_of_sense])[lemmas] > 1
        if not polysemous.any():
            raise StudyError(
                f"{WHAT}: none of {lemmas.max() + 1} lemmas has two senses; give occurrences of "
                "words in different senses"
            )
        split, text = check_split(
            split, len(lemmas), WHAT, text=text, seed=split_seed, shares=shares, validation=False
        )
        split = split.only(polysemous)
        split.check(len(lemmas), WHAT, validation=validation)
        return cls(lemmas, senses, text, split, int(np.count_nonzero(~polysemous)))

    @property
    def known(self) -> Int64[np.ndarray, " senses"]:
        """The senses of the training part, ascending."""
        return np.unique(self.sense[self.split.train])

    @property
    def classes(self) -> Int64[np.ndarray, " words"]:
        """Each word's sense as a place in `known`; `NONE` for another one."""
        return codes_of(self.sense, self.known)

    def senses_of_lemmas(self) -> Bool[np.ndarray, "lemmas senses"]:
        """Which of the `known` senses are each lemma's; all of them, for a lemma without one."""
        allowed = np.zeros((int(self.lemma.max()) + 1, len(self.known)), dtype=bool)
        train = self.split.train
        allowed[self.lemma[train], self.classes[train]] = True
        allowed[~allowed.any(axis=1)] = True
        return allowed

    def by_lemma(
        self,
    ) -> Iterator[tuple[Int64[np.ndarray, " queries"], Int64[np.ndarray, " known"]]]:
        """(test words, training words) of each lemma that has both."""
        train, test = (
            part[np.argsort(self.lemma[part], kind="stable")]
            for part in (self.split.train, self.split.test)
        )
        for code in np.intersect1d(self.lemma[train], self.lemma[test]):
            yield test[_run_of(code, self.lemma[test])], train[_run_of(code, self.lemma[train])]

    def baseline(self) -> Int64[np.ndarray, " test"]:
        """The commonest training sense of each test word's lemma; `NONE` without one."""
        guess = np.full(len(self.lemma), NONE, dtype=np.int64)
        for queries, known in self.by_lemma():
            guess[queries] = commonest(self.sense[known])
        baseline: Int64[np.ndarray, " test"] = guess[self.split.test]
        return baseline

    def settings(self) -> dict[str, object]:
        """What the words are, for JSON."""
        return {
            "baseline": "commonest training sense of the lemma",
            "split": self.split.sizes(),
            "lemmas": len(np.unique(self.lemma[np.concatenate(self.split.parts)])),
            "monosemous_words_dropped": self.n_dropped,
        }

    def predict_subsets(
        self,
        terms: Float32[np.ndarray, "terms words dim"],
        names: Sequence[str],
        result: Callable[[Float32[np.ndarray, "words dim"]], SubsetResult],
        *,
        n_runs: int,
        key: str,
        measure: str,
        settings: dict[str, object],
        keep: Keep,
    ) -> SubsetPredictions:
        """The result of each subset's sum; the empty one predicts the baseline.

        Raises:
            StudyError: NaN terms.
        """
        check_terms(terms, names, WHAT)
        baseline = self.baseline()

        def make(subset: Subset) -> SubsetResult:
            if not subset.members:
                return SubsetResult(np.tile(baseline, (n_runs, 1)))
            return result(subset.sum(terms))

        subsets = term_subsets(names)
        results = [keep(key, subset.label, lambda s=subset: make(s)) for subset in subsets]  # type: ignore[misc]
        return SubsetPredictions(
            measure=measure,
            names=tuple(names),
            predicted=np.stack([r.predicted for r in results], axis=1),
            targets=self.sense[self.split.test],
            baseline=baseline,
            text=self.text[self.split.test],
            settings={**self.settings(), **settings, **chosen_rates(subsets, results)},
        )


def _codes(values: Sequence[object]) -> Int64[np.ndarray, " words"]:
    """A number for each value, in order of appearance."""
    first: dict[object, int] = {}
    return np.array([first.setdefault(value, len(first)) for value in values], dtype=np.int64)


def _run_of(code: np.int64, ordered: Int64[np.ndarray, " words"]) -> slice:
    return slice(*np.searchsorted(ordered, [code, code + 1]))
