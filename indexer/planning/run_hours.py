"""How long a run takes: by bytes, by requests, by arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import RequestError

_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgG])(bit|B)(?:/s)?\s*")
_SCALES = {"k": 1e3, "m": 1e6, "g": 1e9}

PROCESSOR_NS = 6.6
"""Processor time for each parameter of the layer matrices that is read (docs/benchmarks.md,
BERT-base in float32, one thread)."""

START_S, SLOT_S, REQUEST_S = 4.0, 0.004, 0.004
"""Processor time of a run without models, for each slot of a model, and for each request: fits of
the measurements in docs/plan.md."""

ADAPTER_SLOTS = 36
"""Of an adapter of which nothing is known: three matrices of twelve layers."""


def parse_bandwidth(text: str) -> float:
    """Bits a second: `1Gbit`, `200Mbit`, or bytes, `50MB`.

    Raises:
        RequestError: not understood.
    """
    match = _TEXT.fullmatch(text)
    value = float(match[1]) * _SCALES[match[2].lower()] if match else 0.0
    if match is None or not value:
        raise RequestError(f"bandwidth {text!r}: expected a rate such as 1Gbit, 200Mbit or 50MB")
    return value if match[3] == "bit" else 8 * value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHours:
    """Hours of a run; once it has started, bytes, requests and arithmetic go on at the same time.

    Attributes:
        start: Until the first model is read.
        bandwidth: To fetch all bytes, of each worker's share.
        requests: That the Hub's limits make all workers wait together.
        processor: Of arithmetic, of each worker's share.
    """

    start: float
    bandwidth: float
    requests: float
    processor: float

    @property
    def total(self) -> float:
        return self.start + max(self.bandwidth, self.requests, self.processor)

    @property
    def binds(self) -> str:
        """What decides the total."""
        hours = self._by_cause()
        return max(hours, key=hours.__getitem__)

    def _by_cause(self) -> dict[str, float]:
        return {
            "start": self.start,
            "bandwidth": self.bandwidth,
            "requests": self.requests,
            "processor": self.processor,
        }

    def to_json(self) -> dict[str, object]:
        return {**self._by_cause(), "total": self.total, "binds": self.binds}
