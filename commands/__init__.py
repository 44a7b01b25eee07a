"""Commands beside those of `cli.py`: studies, maps, the service, care of the catalog."""

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

COMMANDS = (
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

__all__ = ["COMMANDS", "print_document"]
