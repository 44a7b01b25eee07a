"""How large a repository's weight files are, without reading them."""

from __future__ import annotations

import json

from ...errors import ModelError
from ..checkpoint import DTYPES, choose_weights
from .files import read_small_file
from .hub_model import HubModel
from .remote_bytes import locate
from .session import HubSession


def stated_bytes(model: HubModel) -> int | None:
    """Bytes of the parameters that the listing counts, by type; None where it counts none.

    Headers are not in it, nor tensors of a type whose width is not known.
    """
    if not model.dtypes:
        return None
    widths = {dtype: _width(dtype) for dtype in model.dtypes}
    if None in widths.values():
        return None
    return sum(n * (widths[dtype] or 0) for dtype, n in model.dtypes.items())


def _width(dtype: str) -> int | None:
    if dtype in DTYPES:
        return DTYPES[dtype].itemsize
    return 1 if dtype.startswith("F8") else None


def request_bytes(model: HubModel, session: HubSession) -> int:
    """The size of the weight file by a HEAD request, or that of all shards by their index.

    Raises:
        ModelError: `no-weights`, or what the request runs into.
    """
    top = [name for name in model.files or () if "/" not in name]
    name = choose_weights(top, adapter=model.kind == "adapter")
    if name is None:
        raise ModelError("no-weights", f"{model.id}: no weight file")
    if not name.endswith(".json"):
        return locate(session, model.id, model.sha, name).size
    try:
        index = json.loads(read_small_file(model, name, session=session))
        size = index["metadata"]["total_size"]
    except (ValueError, RecursionError, KeyError, TypeError):
        size = None
    if not isinstance(size, (int, float)) or not 0 < size < 1 << 60:
        raise ModelError("bad-header", f"{model.id}: {name} does not say how large its shards are")
    return int(size)
