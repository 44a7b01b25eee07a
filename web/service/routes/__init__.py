"""The requests that the service answers, by what they are about."""

from .jobs import router as of_jobs
from .reading import of_families, of_models, of_operations, unversioned
from .similar import router as of_similarity
from .writing import router as of_changes

VERSIONED = (of_models, of_similarity, of_families, of_jobs, of_operations, of_changes)

__all__ = ["VERSIONED", "unversioned"]
