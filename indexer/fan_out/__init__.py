"""A family read by many processes or machines: leases of models, each of which becomes a part."""

from .part_run import write_parts
from .ray_run import ClusterOptions, index_on_ray
from .share import Share

__all__ = ["ClusterOptions", "Share", "index_on_ray", "write_parts"]
