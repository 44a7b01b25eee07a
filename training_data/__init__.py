"""Training data as a query: which fine-tunes were trained on it."""

from .chat import chat_template as chat_template
from .data_query import DataQueryOptions as DataQueryOptions
from .data_set import make_data_set as make_data_set
from .data_set import wants_labels as wants_labels
from .examples import ColumnChoice as ColumnChoice
from .examples import ExampleSet as ExampleSet
from .examples import data_set_names as data_set_names
from .examples import data_sets_in as data_sets_in
from .examples import read_examples as read_examples
from .examples.messages import Template as Template
from .matched_examples import matched_examples as matched_examples
from .same_base import require_same_base as require_same_base
