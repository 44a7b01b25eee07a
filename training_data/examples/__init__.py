"""Examples of a data set, drawn from its files."""

from ...tables.data_files import data_set_names, data_sets_in
from .columns import ColumnChoice, FoundColumn
from .example import Example
from .example_set import ClassCount, ExampleSet, SkippedRows
from .reading import read_examples

__all__ = [
    "ClassCount",
    "ColumnChoice",
    "Example",
    "ExampleSet",
    "FoundColumn",
    "SkippedRows",
    "data_set_names",
    "data_sets_in",
    "read_examples",
]
