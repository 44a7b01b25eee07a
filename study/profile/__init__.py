"""One probe over every model of a family: its inside, and its activation shifts."""

from .model_profile import ProbedBase, Profile, probe_base, profile_model, profile_settings
from .probe import probe_texts

__all__ = [
    "ProbedBase",
    "Profile",
    "probe_base",
    "probe_texts",
    "profile_model",
    "profile_settings",
]
