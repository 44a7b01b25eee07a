"""Groups of models that lie close together, their names, and datasets suggested by neighbours."""

from .report import Cluster, ClusterReport, cluster_family
from .suggest import Calibration, Suggestion, suggest_datasets

__all__ = [
    "Calibration",
    "Cluster",
    "ClusterReport",
    "Suggestion",
    "cluster_family",
    "suggest_datasets",
]
