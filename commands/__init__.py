"""The commands, one file each: a frozen record of options, one call, one document."""

from .add import add
from .backup import backup
from .cluster import cluster
from .completion import completion
from .components import components
from .demo import demo
from .diff import diff
from .doctor import doctor
from .eval import evaluate_command
from .exits import EXIT_NOTHING_DONE, Interruption
from .export import export
from .failures import failures
from .find_similar import find_similar
from .geometry import geometry
from .index import index
from .label import label
from .layers import layers
from .ls import list_models
from .map import map_command
from .merge import merge
from .profile import profile
from .rank import rank
from .rm import rm
from .serve import serve
from .show import show
from .sql import sql
from .stats import stats

COMMANDS = (
    add,
    backup,
    cluster,
    completion,
    components,
    demo,
    diff,
    doctor,
    evaluate_command,
    export,
    failures,
    find_similar,
    geometry,
    index,
    label,
    layers,
    list_models,
    map_command,
    merge,
    profile,
    rank,
    rm,
    serve,
    show,
    sql,
    stats,
)

__all__ = ["COMMANDS", "EXIT_NOTHING_DONE", "Interruption"]
