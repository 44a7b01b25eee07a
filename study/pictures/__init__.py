"""Pictures of the studies' reports."""

from .figures import check_ending, save_picture

__all__ = ["check_ending", "save_picture"]
