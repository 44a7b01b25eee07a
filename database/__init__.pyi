from .database import Database, check_picture_ending, doctor, open
from .members import Indexing, query
from .opened import Place, Track
from .queries import AdapterReading, read_adapter
from .studies import Running
from .studies.tables import (
    AblationStudy,
    ComponentStudy,
    GeometryStudy,
    LayerStudy,
    ProfileTable,
    RankStudy,
    Study,
)
from .tables import (
    ClusterTable,
    DifferenceTable,
    EvaluationTable,
    ExplanationTable,
    FailureTable,
    FindingTable,
    IndexReport,
    ModelTable,
    NeighbourTable,
    QueryTable,
    SlotTable,
    StatsTable,
    Table,
)

__all__ = [
    "AblationStudy",
    "AdapterReading",
    "ClusterTable",
    "ComponentStudy",
    "Database",
    "DifferenceTable",
    "EvaluationTable",
    "ExplanationTable",
    "FailureTable",
    "FindingTable",
    "GeometryStudy",
    "IndexReport",
    "Indexing",
    "LayerStudy",
    "ModelTable",
    "NeighbourTable",
    "Place",
    "ProfileTable",
    "QueryTable",
    "RankStudy",
    "Running",
    "SlotTable",
    "StatsTable",
    "Study",
    "Table",
    "Track",
    "check_picture_ending",
    "doctor",
    "open",
    "query",
    "read_adapter",
]
