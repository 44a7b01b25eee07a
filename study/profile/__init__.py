"""One probe over every model of a family: its inside, and its activation shifts."""

from .probe import probe_texts
from .profile import ProbedBase, Profile, probe_base, profile_model, profile_settings

__all__ = [
    "ProbedBase",
    "Profile",
    "probe_base",
    "probe_texts",
    "profile_model",
    "profile_settings",
]
