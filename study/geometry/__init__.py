"""The shape of a network's states: dimension, direction, distance from a reference language."""

from .anisotropy import anisotropy
from .divergence import gaussian_divergence
from .fertility import fertility
from .intrinsic_dimension import intrinsic_dimension
from .options import GeometryOptions
from .report import GeometryReport
from .study import geometry_study

__all__ = [
    "GeometryOptions",
    "GeometryReport",
    "anisotropy",
    "fertility",
    "gaussian_divergence",
    "geometry_study",
    "intrinsic_dimension",
]
