from .measures import (
    Measured,
    Number,
    StoredMeasures,
    correlate_columns,
    family_values,
    find_measure,
    numbers_of,
    read_columns,
)

__all__ = [
    "Measured",
    "Number",
    "StoredMeasures",
    "correlate_columns",
    "family_values",
    "find_measure",
    "numbers_of",
    "read_columns",
]
