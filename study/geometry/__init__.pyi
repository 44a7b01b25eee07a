from .geometry_report import GeometryReport, geometry_study
from .group_states import GeometryOptions, scrambled
from .moments import gaussian_divergence

__all__ = [
    "GeometryOptions",
    "GeometryReport",
    "gaussian_divergence",
    "geometry_study",
    "scrambled",
]
