"""A family read by many processes or machines: leases of models, each of which becomes a part."""

from .leases import share_of, write_parts
from .ray_run import index_on_ray

__all__ = ["index_on_ray", "share_of", "write_parts"]
