"""The Hugging Face Hub: families listed, models described, weights read by ranges."""

from .files import HubWeights, read_small_file
from .hub_model import HubModel, describe, early_refusal
from .listing import ListingMemory, list_family
from .session import cancel_with

__all__ = [
    "HubModel",
    "HubWeights",
    "ListingMemory",
    "cancel_with",
    "describe",
    "early_refusal",
    "list_family",
    "read_small_file",
]
