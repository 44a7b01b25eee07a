"""A family read by many processes or machines: leases of models, each of which becomes a part."""

from .leases import share_of, write_parts
from .ray_run import ClusterOptions, index_on_ray

__all__ = ["ClusterOptions", "index_on_ray", "share_of", "write_parts"]
