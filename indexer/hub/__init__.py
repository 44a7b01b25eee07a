"""The Hugging Face Hub: families listed, models described, weights read by ranges."""

from .files import HubWeights, read_small_file
from .hub_model import HubModel, describe, early_refusal
from .listing import ListingMemory, list_family
from .session import HubSession, run_session

__all__ = [
    "HubModel",
    "HubSession",
    "HubWeights",
    "ListingMemory",
    "describe",
    "early_refusal",
    "list_family",
    "read_small_file",
    "run_session",
]
