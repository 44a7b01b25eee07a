"""Pictures of what the studies found."""

from .page import check_ending, save_picture

__all__ = ["check_ending", "save_picture"]
