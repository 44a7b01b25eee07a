"""The Hugging Face Hub: families listed, models described, weights read by ranges."""

from .describe import describe
from .early_refusal import early_refusal
from .hub_model import HubModel
from .listing import ListingMemory, list_family
from .remote import content_sha256, open_hub_adapter, open_hub_model
from .session import cancel_with
from .small_files import read_small_file

__all__ = [
    "HubModel",
    "ListingMemory",
    "cancel_with",
    "content_sha256",
    "describe",
    "early_refusal",
    "list_family",
    "open_hub_adapter",
    "open_hub_model",
    "read_small_file",
]
