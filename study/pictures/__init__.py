"""Pictures of what the studies found."""

from .figures import check_ending, save_picture

__all__ = ["check_ending", "save_picture"]
