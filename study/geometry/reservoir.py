"""A uniform sample of fixed size from tokens that come once, all layers of a token together."""

from __future__ import annotations

import numpy as np

from ...arrays import Float32, Int64


class Reservoir:
    """Waterman's algorithm R (Knuth, TAOCP 2, 3.4.2): the first `size`, then replacements.

    The sample depends on the order of the tokens and on the seed, not on the batches.
    Peak: layers · size · dim float32.
    """

    __slots__ = ("_hidden", "_rng", "_text", "seen")

    def __init__(self, layers: int, size: int, dim: int, seed: list[int]) -> None:
        self.seen = 0
        self._hidden = np.empty((layers, size, dim), dtype=np.float32)
        self._text = np.empty(size, dtype=np.int64)
        self._rng = np.random.default_rng(seed)

    def update(
        self, hidden: Float32[np.ndarray, "layers tokens dim"], text: Int64[np.ndarray, " tokens"]
    ) -> None:
        """Take in a batch."""
        size = len(self._text)
        numbers = np.arange(self.seen, self.seen + len(text))
        places = (self._rng.random(len(text)) * (numbers + 1)).astype(np.int64)
        places = np.where(numbers < size, numbers, places)
        taken = np.flatnonzero(places < size)
        last = {int(places[i]): int(i) for i in taken}  # a later token takes an earlier one's place
        into, of = list(last), list(last.values())
        self._hidden[:, into] = hidden[:, of]
        self._text[into] = text[of]
        self.seen += len(text)

    def rows(self, layer: int) -> Float32[np.ndarray, "rows dim"]:
        """The kept tokens in one layer."""
        return self._hidden[layer, : min(self.seen, len(self._text))]

    def texts(self) -> Int64[np.ndarray, " rows"]:
        """Of the kept tokens: which text they are from."""
        return self._text[: self.seen]
