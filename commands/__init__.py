"""Commands that run a study: who is asked about, what is kept, what is drawn."""

from .networks import components, geometry, layers
from .output import print_document
from .profiles import profile
from .weights import diff, rank

STUDY_COMMANDS = (rank, components, geometry, layers, profile, diff)

__all__ = ["STUDY_COMMANDS", "print_document"]
