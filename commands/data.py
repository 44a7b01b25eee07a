"""Data sets as queries: find-trained-on, find-data, and those that are kept."""

from __future__ import annotations

import click

from .. import database, terminal
from .command_line import Common, asking, command, print_answer, show_pairs


@command(database.FindTrainedOn)
def find_trained_on(common: Common, asked: database.FindTrainedOn) -> None:
    """Find the models that were trained on DATA, or on data like it.

    DATA is a file (csv, tsv, jsonl, json, parquet, txt, also .gz), a folder of a `datasets` data
    set, or the name of a data set that was kept. The base runs once over the examples, forward and
    backward; a model whose update lies along the negated gradient was trained on alike data. No
    labelled model is needed. Alike data gives alike gradients: an answer never says that a model
    saw one certain example. --control takes texts of the same kind that no model can have seen,
    such as ones written later, and tells a model of this data from a model of data like it.

    Of a catalog of several families every base is asked, one after the other, where --base names
    none. Their models make one list, by probability; a family that cannot be asked is named with
    the reason.

    \b
    Example:
      deltadex find-trained-on reviews.csv --base sentence-transformers/all-MiniLM-L6-v2
      deltadex find-trained-on chats.jsonl --text messages --keep acme-chats
      deltadex find-trained-on reviews.csv --control reviews-of-this-week.csv
    """
    read_only = None if asked.keep is None else False
    print_answer(common, asked, terminal.show_trained_models, read_only=read_only)


find_data = asking(
    database.FindData,
    "show_nearest_data",
    """Show the kept data sets nearest to MODEL: what it may have been trained on.

    `deltadex find-trained-on FILE --keep NAME` keeps a data set.
    """,
    "find-data someone/bert-imdb",
)


@click.group()
def data() -> None:
    """List, show and remove kept data sets: fingerprints, counts, hash and settings, no texts.

    \b
    Example:
      deltadex data ls
      deltadex data show acme-chats
    """


ls = asking(
    database.KeptData,
    "show_data_sets",
    "List the kept data sets.",
    "data ls",
    group=data,
)


show = asking(
    database.ShowData,
    "show_data_set",
    "Show all that is kept of the data set NAME.",
    "data show acme-chats",
    group=data,
)


rm = asking(
    database.RemoveData,
    show_pairs,
    "Forget the data set NAME.",
    "data rm acme-chats",
    group=data,
    prints_table=False,
    read_only=False,
)
