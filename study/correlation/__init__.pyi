from .column_file import ColumnFile, read_columns
from .measures import Measured, Number, family_values, find_measure, measure_names, numbers_of
from .spearman import Correlation, correlate_columns

__all__ = [
    "ColumnFile",
    "Correlation",
    "Measured",
    "Number",
    "correlate_columns",
    "family_values",
    "find_measure",
    "measure_names",
    "numbers_of",
    "read_columns",
]
