"""Weights to fingerprints: a family's members, their updates, the run over all of them."""

from .index import (
    IndexOptions,
    claimed_base,
    fingerprint_query,
    guess_base,
    index_family,
    resolve_base,
)
from .run import Progress, Report
from .sent_adapter import fingerprint_sent_adapter
from .spectra import update_spectra, weight_spectra

__all__ = [
    "IndexOptions",
    "Progress",
    "Report",
    "claimed_base",
    "fingerprint_query",
    "fingerprint_sent_adapter",
    "guess_base",
    "index_family",
    "resolve_base",
    "update_spectra",
    "weight_spectra",
]
