"""Training data as a query: which fine-tunes were trained on it."""

from pathlib import Path

from ..tables.data_files import data_set_names as data_set_names
from ..tables.data_files import data_sets_in as data_sets_in
from ..tables.data_files import locate_data_files as locate_data_files
from .columns import ColumnChoice as ColumnChoice
from .cost import GradientCost as GradientCost
from .cost import count_tokens as count_tokens
from .examples import Example as Example
from .examples import ExampleSet as ExampleSet
from .examples import Template as Template
from .examples import chat_template as chat_template
from .examples import read_examples as read_examples
from .gradients import DataQueryOptions as DataQueryOptions
from .gradients import make_data_set as make_data_set
from .gradients import matched_examples as matched_examples
from .gradients import require_same_base as require_same_base
from .gradients import wants_labels as wants_labels

BUILTIN_PANEL = Path(__file__).with_name("builtin_panel")
"""The folder of the panel that comes with deltadex, a file for each data set."""
