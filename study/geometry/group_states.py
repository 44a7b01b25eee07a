"""What a geometry study stores of the hidden states of each group, batch by batch."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...arrays import Float32, Int64
from ...errors import StudyError
from ...results import JsonRecord, Row, count
from ..texts import Text
from .intrinsic_dimension import assign_blocks, distinct_rows
from .moments import AXES, LayerStep, Moments, RowSums, StreamMoments

if TYPE_CHECKING:
    from ..network.hidden_states import TokenStates

Hidden = Float32[np.ndarray, "layers tokens dim"]
OfTokens = Int64[np.ndarray, " tokens"]
OfTexts = Int64[np.ndarray, " texts"]
Vector = Float32[np.ndarray, " dim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryOptions(JsonRecord):
    """The options are part of the report: the same states and options give the same numbers.

    Attributes:
        keep: Tokens sampled from each group at random, the same in every layer.
        axes: Of the Gaussian divergence.
        resamples: Bootstrap resamples of the texts.
    """

    keep: int
    axes: int = AXES
    resamples: int = 1000
    seed: int


Tokenize = Callable[[str], Sequence[int]]
"""A text's token ids, without special tokens."""

UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
"""Beginnings of the Unicode names of letters in scripts that put no space between words."""


def fertility(
    texts: Sequence[Text], tokenize: Tokenize, *, unknown: int | None = None
) -> dict[str, Row]:
    """By group, in order of appearance; `unknown` is the id of the unknown token, if any.

    `tokens` are of all texts, which are not cut; words of `tokens_per_word` end at whitespace, None
    in scripts without spaces between words; `tokens_per_character` are without whitespace;
    `unknown_share` is that of unknown tokens, 0…1, None if the tokenizer has none.
    """
    by_group: dict[str, list[str]] = {}
    for text in texts:
        by_group.setdefault(text.group, []).append(text.text)
    return {group: _of_group(own, tokenize, unknown) for group, own in by_group.items()}


def is_spaced(text: str) -> bool:
    """Whether half of its letters or more are of scripts that put spaces between words."""
    letters = [char for char in text if char.isalpha()]
    unspaced = sum(unicodedata.name(char, "").startswith(UNSPACED) for char in letters)
    return 2 * unspaced <= len(letters)


def _of_group(texts: Sequence[str], tokenize: Tokenize, unknown: int | None) -> Row:
    spelled = [word for text in texts for word in text.split()]
    n_characters = sum(map(len, spelled))
    n_tokens = n_unknown = 0
    for text in texts:
        ids = list(tokenize(text))
        n_tokens += len(ids)
        n_unknown += ids.count(unknown) if unknown is not None else 0
    spaced = bool(spelled) and is_spaced("".join(spelled))
    return {
        "texts": len(texts),
        "tokens": n_tokens,
        "tokens_per_word": n_tokens / len(spelled) if spaced else None,
        "tokens_per_character": n_tokens / n_characters if n_characters else None,
        "unknown_share": n_unknown / n_tokens if unknown is not None and n_tokens else None,
    }


SCRAMBLED = ", scrambled"
"""What the name of a group of scrambled texts ends in."""

FIRST_TRIES = 10
"""Permutations that are tried for one that changes the text."""


def scrambled(texts: Sequence[Text], seed: int) -> list[Text]:
    """Each text with its words permuted, in a group of its own with the same ids.

    Scripts without spaces between words have their characters permuted. A text of one word, or of
    equal words, stays as it is.
    """
    return [
        replace(text, text=_permuted(text.text, seed, text.id), group=scrambled_group(text.group))
        for text in texts
    ]


def scrambled_group(group: str) -> str:
    """The group's name; of texts without groups, `scrambled`."""
    return f"{group}{SCRAMBLED}" if group else SCRAMBLED.removeprefix(", ")


def _permuted(text: str, seed: int, name: str) -> str:
    """The seed of a text depends on its id, not on its place among the texts."""
    spaced = is_spaced(text)
    parts = text.split() if spaced else [char for char in text if not char.isspace()]
    digest = hashlib.sha256(f"{seed}:{name}".encode("utf-8", "replace")).digest()
    rng = np.random.default_rng(list(digest))
    for _ in range(FIRST_TRIES):
        order = [parts[place] for place in rng.permutation(len(parts))]
        if order != parts:
            break
    return (" " if spaced else "").join(order) if parts else text


MOST_BYTES = 8 * 2**30
"""Memory that a study may use; a larger study is refused before the memory is taken."""

HALVES = 2


class Reservoir:
    """A uniform sample of tokens, with all layers of a token together.

    Waterman's algorithm R (Knuth, TAOCP 2, 3.4.2): the first `size` tokens, then replacements.
    The sample depends on the order of the tokens and on the seed, not on the batches.
    Peak: layers · size · dim float32.
    """

    def __init__(self, layers: int, size: int, dim: int, seed: int | list[int]) -> None:
        self.seen = 0
        self._hidden = np.empty((layers, size, dim), dtype=np.float32)
        self._text = np.empty(size, dtype=np.int64)
        self._rng = np.random.default_rng(seed)

    def update(self, hidden: Hidden, text: OfTokens) -> None:
        size = len(self._text)
        numbers = np.arange(self.seen, self.seen + len(text))
        places = (self._rng.random(len(text)) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < size, numbers, places)
        # of two tokens with the same place, the later one replaces the earlier one
        last = {int(places[i]): int(i) for i in np.flatnonzero(places < size)}
        into, of = list(last), list(last.values())
        self._hidden[:, into] = hidden[:, of]
        self._text[into] = text[of]
        self.seen += len(text)

    def hidden(self) -> Hidden:
        return self._hidden[:, : self.seen]

    def rows(self, layer: int) -> Float32[np.ndarray, "rows dim"]:
        return self._hidden[layer, : self.seen]

    def texts(self) -> Int64[np.ndarray, " rows"]:
        return self._text[: self.seen]


class GroupStates:
    """One group: sums over all tokens by layer, a sample of tokens, the means of parallel texts.

    Also the moments of all tokens in each half of the texts, and those with the next layer; where
    they are not `streamed`, the sample stands for all tokens.
    """

    def __init__(
        self,
        group: str,
        shape: tuple[int, int],
        options: GeometryOptions,
        half: OfTexts,
        *,
        streamed: bool,
        parallel: frozenset[int],
    ) -> None:
        layers, dim = shape
        self._half = half
        self.n_tokens = 0
        self.sums = [RowSums(dim) for _ in range(layers)]
        self.sample = Reservoir(layers, options.keep, dim, [options.seed, *group.encode()])
        self._streamed = [StreamMoments(layers, dim) for _ in range(HALVES * streamed)]
        self._distinct: list[Int64[np.ndarray, " _"]] = []
        self._parallel = parallel
        self._totals: dict[int, Float32[np.ndarray, "layers dim"]] = {}
        self._counts: dict[int, int] = {}

    def update(self, hidden: Hidden, text: OfTokens) -> None:
        self.n_tokens += len(text)
        self.sample.update(hidden, text)
        for layer, rows in enumerate(hidden):
            self.sums[layer].update(rows)
        for part, moments in enumerate(self._streamed):
            moments.update(hidden[:, self._half[text] == part])
        for number in self._parallel.intersection(text.tolist()):
            own = hidden[:, text == number]
            total = own.sum(axis=1, dtype=np.float64)
            self._totals[number] = (self._totals.get(number, 0.0) + total).astype(np.float32)
            self._counts[number] = self._counts.get(number, 0) + own.shape[1]

    def moments(self, layer: int) -> list[Moments]:
        """The moments of each half: of all tokens where they were streamed, else of the sample."""
        if self._streamed:
            return [part.layers[layer] for part in self._streamed]
        half = self._half[self.sample.texts()]
        return [Moments.of(self.sample.rows(layer)[half == part]) for part in range(HALVES)]

    def step(self, layer: int) -> list[LayerStep]:
        """The step into a layer from the one before, by half."""
        if self._streamed:
            return [
                LayerStep(part.layers[layer - 1], part.layers[layer], part.crossed[layer - 1])
                for part in self._streamed
            ]
        half = self._half[self.sample.texts()]
        x, y = (self.sample.rows(number) for number in (layer - 1, layer))
        return [LayerStep.of(x[half == part], y[half == part]) for part in range(HALVES)]

    def distinct(self) -> list[Int64[np.ndarray, " _"]]:
        """The distinct rows of the sample in each layer; asked for when all batches are in."""
        if not self._distinct:
            layers = range(len(self.sums))
            self._distinct = [distinct_rows(self.sample.rows(layer)) for layer in layers]
        return self._distinct

    def mean_of(self, number: int, layer: int) -> Vector | None:
        """The mean vector of a parallel text; None for a text without tokens."""
        if number not in self._totals:
            return None
        mean: Vector = self._totals[number][layer] / np.float32(self._counts[number])
        return mean


class CollectedStates:
    """The states of all groups.

    Attributes:
        by_group: In order of the texts.
        index: By group, the number of each text by its id.
        half: Of each text, whether its rank among its group's distinct texts is even or odd: equal
            texts are in one half, so that neither is held out from the other.
        block: Of each text, its block among the group's texts, for standard errors.
    """

    def __init__(
        self,
        states: Iterable[TokenStates],
        texts: Sequence[Text],
        reference: str | None,
        options: GeometryOptions,
        *,
        networks: int = 1,
    ) -> None:
        self.index: dict[str, dict[str, int]] = {}
        self.half = np.zeros(len(texts), dtype=np.int64)
        distinct: dict[str, dict[str, int]] = {}
        for number, text in enumerate(texts):
            self.index.setdefault(text.group, {})[text.id] = number
            ranks = distinct.setdefault(text.group, {})
            self.half[number] = ranks.setdefault(text.text, len(ranks)) % HALVES
        self.block = np.zeros(len(texts), dtype=np.int64)
        for own in self.index.values():
            self.block[list(own.values())] = assign_blocks(list(own), options.seed)
        if reference is not None and reference not in self.index:
            groups = ", ".join(map(repr, filter(None, self.index)))
            raise StudyError(
                f"no text of the reference group {reference!r}; "
                + (f"the groups are {groups}" if groups else "the texts have no column `group`")
            )
        self.by_group: dict[str, GroupStates] = {}
        self.shape = (0, 0)
        self.reference, self.options, self._networks = reference, options, networks
        self._group_of = np.array([text.group for text in texts], dtype=np.str_)
        for batch in states:
            self._update(batch)
        if not any(group.n_tokens for group in self.by_group.values()):
            raise StudyError(
                f"{count(len(texts), 'text')} without a token to study: special tokens and first "
                "positions do not count; give longer texts"
            )

    def _update(self, batch: TokenStates) -> None:
        layers, n_tokens, dim = batch.hidden.shape
        if not self.by_group:
            self._begin((layers, dim))
        groups = self._group_of[batch.text] if n_tokens else np.empty(0, dtype=np.str_)
        for group in np.unique(groups).tolist():
            mine = groups == group
            hidden = batch.hidden if mine.all() else batch.hidden[:, mine]
            if not np.isfinite(hidden).all():
                layer = int(np.argmin(np.isfinite(hidden).all(axis=(1, 2))))
                raise StudyError(
                    f"hidden state {layer} holds NaN or infinity"
                    f"{f' on texts of {group!r}' if group else ''}: check the model's weights"
                )
            self.by_group[group].update(hidden, batch.text[mine])

    def _begin(self, shape: tuple[int, int]) -> None:
        self.shape = layers, dim = shape
        # the samples and the means of parallel texts
        n_bytes = 4 * dim * self.options.keep * len(self.index)
        if self.reference is not None:
            n_bytes += 4 * dim * sum(map(len, self.index.values()))
        moments = 8 * dim**2 * HALVES * 2 * len(self.index)
        streamed = self._networks * layers * (n_bytes + moments) <= MOST_BYTES
        # of the sample, the moments of one layer at a time
        needed = self._networks * layers * n_bytes + moments
        if not streamed and needed > MOST_BYTES:
            raise StudyError(
                f"{count(len(self.index), 'group')} of {layers} layers × {dim} would need "
                f"{needed / 2**30:.0f} GiB; give fewer groups, or lower --keep-tokens"
            )
        for group, own in self.index.items():
            self.by_group[group] = GroupStates(
                group,
                shape,
                self.options,
                self.half,
                streamed=streamed,
                parallel=frozenset(own[i] for i in self._parallel(group)),
            )

    def _parallel(self, group: str) -> list[str]:
        """Ids that the group shares with the reference, or the reference with any group."""
        if self.reference is None:
            return []
        theirs = self.index[self.reference]
        if group != self.reference:
            return [i for i in self.index[group] if i in theirs]
        others = {i for name, own in self.index.items() if name != group for i in own}
        return [i for i in theirs if i in others]
