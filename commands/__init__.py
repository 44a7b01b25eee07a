"""Commands that run a study: who is asked about, what is kept, what is drawn."""

from .backup import backup
from .clusters import cluster
from .doctor import doctor
from .maps import map_command
from .merge import merge
from .networks import components, geometry, layers
from .output import print_document
from .profiles import profile
from .serve import serve
from .weights import diff, rank

STUDY_COMMANDS = (
    rank,
    components,
    geometry,
    layers,
    profile,
    diff,
    serve,
    map_command,
    cluster,
    backup,
    merge,
    doctor,
)

__all__ = ["STUDY_COMMANDS", "print_document"]
