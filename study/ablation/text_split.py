"""The split of items into training, validation and test parts, text by text."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...arrays import Bool, Int64
from ...errors import StudyError

TRAIN_VALIDATE_TEST = (0.8, 0.1, 0.1)
TRAIN_TEST = (0.8, 0.0, 0.2)


@dataclass(frozen=True, slots=True)
class Split:
    """Rows of the items, each in at most one part.

    Attributes:
        seed: Of a split that was drawn; None for one that the user gave.
    """

    train: Int64[np.ndarray, " train"] = field(compare=False)
    validation: Int64[np.ndarray, " validation"] = field(compare=False)
    test: Int64[np.ndarray, " test"] = field(compare=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        rows = np.concatenate(self.parts)
        if len(np.unique(rows)) != len(rows):
            raise ValueError("an item is in two parts of the split, or twice in one")
        if len(rows) and rows.min() < 0:
            raise ValueError(f"a split's rows count from 0, got {rows.min()}")

    @property
    def parts(self) -> tuple[Int64[np.ndarray, " _"], ...]:
        return self.train, self.validation, self.test

    def check(self, n_items: int, what: str, *, validation: bool = False) -> None:
        """Refuse a split with an empty part, or with items that do not exist."""
        rows = np.concatenate(self.parts)
        if len(rows) and rows.max() >= n_items:
            raise ValueError(f"{what}: the split names item {rows.max()} of {n_items}")
        parts = {"training": self.train, "test": self.test}
        if validation:
            parts["validation"] = self.validation
        empty = [name for name, part in parts.items() if not len(part)]
        if empty:
            raise StudyError(
                f"{what}: no {empty[0]} items among {n_items}; give more texts or a split"
            )

    def only(self, keep: Bool[np.ndarray, " items"]) -> Split:
        """The same parts with the items where `keep` is true."""
        train, validation, test = (part[keep[part]] for part in self.parts)
        return Split(train, validation, test, self.seed)

    def sizes(self) -> dict[str, object]:
        """The number of items in each part, and the seed, for JSON."""
        n_train, n_validation, n_test = map(len, self.parts)
        return {"train": n_train, "validation": n_validation, "test": n_test, "seed": self.seed}


def split_by_text(
    text: Int64[np.ndarray, " items"],
    *,
    seed: int = 0,
    shares: tuple[float, float, float] = TRAIN_VALIDATE_TEST,
) -> Split:
    """Parts in the given shares of texts, drawn at random; a text is never in two parts.

    Each part with a share gets at least one text while there are enough: test first, then
    validation.
    """
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError(f"shares must be non-negative and sum to 1, got {shares}")
    texts = np.unique(text)
    order = np.random.default_rng(seed).permutation(texts)
    room, sizes = len(texts) - 1, []
    for share in (shares[2], shares[1]):
        size = min(max(1, round(share * len(texts))), max(0, room)) if share else 0
        room -= size
        sizes.append(size)
    drawn = np.split(order, np.cumsum(sizes))
    test, validation, train = (np.flatnonzero(np.isin(text, part)) for part in drawn)
    return Split(train, validation, test, seed)


def check_split(
    split: Split | None,
    n_items: int,
    what: str,
    *,
    text: Int64[np.ndarray, " items"] | None,
    seed: int,
    shares: tuple[float, float, float] = TRAIN_VALIDATE_TEST,
    validation: bool,
) -> tuple[Split, Int64[np.ndarray, " items"]]:
    """The split, drawn where none is given, and each item's text, its own where none is given.

    Raises:
        StudyError: a part of the split is empty.
    """
    text = np.arange(n_items) if text is None else text
    split = split or split_by_text(text, seed=seed, shares=shares)
    split.check(n_items, what, validation=validation)
    return split, text
