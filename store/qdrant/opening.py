"""Opening a target by the engine that it needs, which is imported only then."""

from __future__ import annotations

from ...errors import RequestError
from .points import PointCollection
from .target import EdgeTarget, Target


def open_collection(target: Target) -> PointCollection:
    """The collection at a target; with `dim` None, where there is none yet.

    Raises:
        EngineError: it is damaged, not reached, or not ours.
        RequestError: the engine is not installed.
    """
    try:
        if isinstance(target, EdgeTarget):
            from .edge import EdgeCollection

            return EdgeCollection(target.folder)
        from .server import ServerCollection

        return ServerCollection.at(target)
    except ModuleNotFoundError as err:
        name = (err.name or "").split(".")[0]
        if name not in ("qdrant_edge", "qdrant_client"):
            raise
        raise RequestError(
            f"{target} needs {name.replace('_', '-')}: pip install 'deltadex[qdrant]'"
        ) from err
