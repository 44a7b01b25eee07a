"""The shape of a network's states: dimension, direction, distance from a reference language."""

from .anisotropy import anisotropy
from .divergence import gaussian_divergence
from .fertility import fertility
from .geometry_options import GeometryOptions
from .geometry_report import GeometryReport, geometry_study
from .intrinsic_dimension import intrinsic_dimension
from .scrambling import scrambled

__all__ = [
    "GeometryOptions",
    "GeometryReport",
    "anisotropy",
    "fertility",
    "gaussian_divergence",
    "geometry_study",
    "intrinsic_dimension",
    "scrambled",
]
