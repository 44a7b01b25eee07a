"""The requests that the service answers, by what they are about."""

from .jobs import router as jobs
from .models import router as models
from .operations import router as operations
from .operations import unversioned
from .similar import router as similar
from .views import router as views
from .writing import router as writing

__all__ = ["jobs", "models", "operations", "similar", "unversioned", "views", "writing"]
