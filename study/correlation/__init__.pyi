from .measures import StoredMeasures, correlate_columns, read_columns

__all__ = ["StoredMeasures", "correlate_columns", "read_columns"]
