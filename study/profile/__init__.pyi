from .model_profile import ProbedBase, probe_base, profile_model
from .profile import probe_texts, profile_settings

__all__ = ["ProbedBase", "probe_base", "probe_texts", "profile_model", "profile_settings"]
