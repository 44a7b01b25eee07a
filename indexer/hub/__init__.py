"""The Hugging Face Hub: families listed, models described, weights read by ranges."""

from .describe import describe
from .early_refusal import early_refusal
from .hub_model import HubModel
from .listing import ListingMemory, list_family
from .session import cancel_with
from .small_files import read_small_file
from .weights import HubWeights

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
