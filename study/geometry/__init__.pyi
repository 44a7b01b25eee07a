from .divergence import gaussian_divergence
from .geometry_options import GeometryOptions
from .geometry_report import GeometryReport, geometry_study
from .scrambling import scrambled

__all__ = [
    "GeometryOptions",
    "GeometryReport",
    "gaussian_divergence",
    "geometry_study",
    "scrambled",
]
