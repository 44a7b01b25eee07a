"""A family read by many processes or machines: leases of models, each of which becomes a part."""

from .part_run import write_parts
from .ray_run import ClusterOptions, index_on_ray
from .share import share_of

__all__ = ["ClusterOptions", "index_on_ray", "share_of", "write_parts"]
