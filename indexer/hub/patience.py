"""How long the Hub is waited for: every limit in one record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of one call to the Hub; all times in seconds.

    Attributes:
        connect_s: For a connection to be made.
        read_s: Without a single byte arriving.
        call_s: For the whole call with its retries, waits for rate limits apart.
        bytes_per_second: A call that fetches many bytes may take that much longer.
        rate_limit_s: Spent waiting, within one call, because the Hub asks to.
        tries: Failures in a row before a call is given up.
        first_pause_s: Before the first retry; doubled for each further one.
        longest_pause_s: Before any retry.
    """

    connect_s: float = 10.0
    read_s: float = 30.0
    call_s: float = 120.0
    bytes_per_second: float = 100_000.0
    rate_limit_s: float = 300.0
    tries: int = 5
    first_pause_s: float = 1.0
    longest_pause_s: float = 8.0

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** (failures - 1))
