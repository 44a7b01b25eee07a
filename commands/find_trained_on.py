"""`deltadex find-trained-on`: the models that were trained on a data set, or on data like it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from .. import terminal
from ..database import Filters, check_scores_ending
from ..terminal.options import (
    Common,
    argument,
    base_option,
    option,
    recipe_option,
    takes,
)
from .exits import EXIT_SOME_FAILED
from .opening import open_database
from .output import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """A data set or several, and how many answers each has."""

    data: str = argument(metavar="DATA")
    k: int = option("-k", default=10, help="Show this many models.")
    base: str | None = base_option()
    recipe: str | None = recipe_option()
    keep: str | None = option(
        "--keep",
        metavar="NAME",
        help="Keep the data set under this name: fingerprints, counts, hash and settings, no text.",
    )
    control: str | None = option(
        "--control",
        metavar="FILE_OR_NAME",
        help="Test whether models lie nearer to DATA than to these texts, which no model has seen.",
    )
    each: bool = option(
        "--each",
        help="DATA is a folder; each file and folder in it is a data set of its own.",
    )
    output: Path | None = option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --each: write z of every data set and model to .csv, or draw it: .png, .svg, "
        ".html.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How examples are read and a gradient is computed."""

    text: str | None = option("--text", metavar="COLUMN", help="The column of texts or messages.")
    label: str | None = option("--label", metavar="COLUMN", help='Of labels; "" uses none.')
    pair: str | None = option("--pair", metavar="COLUMN", help="Of the second text of a pair.")
    completion: str | None = option(
        "--completion", metavar="COLUMN", help="Of completions or answers to the text."
    )
    split: str | None = option("--split", help="Of a folder with several.  [default: train]")
    max_examples: int = option(
        "--max-examples", default=512, type=click.IntRange(min=8), help="Draw at most this many."
    )
    seed: int = option("--seed", default=0, help="Of the draw.")
    loss: (
        Literal["causal", "seq2seq", "masked", "classification", "regression", "contrastive"] | None
    ) = option("--loss", help="Instead of the one that the base and the labels suggest.")
    max_tokens: int = option(
        "--max-tokens", default=128, type=click.IntRange(min=2), help="Cut each text to this many."
    )
    batch_size: int = option(
        "--batch-size", default=16, type=click.IntRange(min=1), help="Run this many texts at once."
    )
    device: str = option("--device", default="cpu", help="Of torch: cpu, cuda, cuda:1, ….")
    dtype: Literal["float32", "bfloat16"] = option(
        "--dtype", default="float32", help="Of the base's weights in memory."
    )


@click.command("find-trained-on")
@takes(Data, Reading, Filters)
def find_trained_on(common: Common, asked: Data, reading: Reading, filters: Filters) -> None:
    """Find the models that were trained on DATA, or on data like it.

    DATA is a file (csv, tsv, jsonl, json, parquet, txt, also .gz), a folder of a `datasets` data
    set, or the name of a data set that was kept. The base runs once over the examples, forward and
    backward; a model whose update lies along the negated gradient was trained on alike data. No
    labelled model is needed. Alike data gives alike gradients: an answer never says that a model
    saw one certain example. --control takes texts of the same kind that no model can have seen,
    such as ones written later, and tells a model of this data from a model of data like it.

    \b
    Example:
      deltadex find-trained-on reviews.csv --base sentence-transformers/all-MiniLM-L6-v2
      deltadex find-trained-on chats.jsonl --text messages --keep acme-chats
      deltadex find-trained-on reviews.csv --control reviews-of-this-week.csv
      deltadex find-trained-on our-data/ --each -o table.csv
    """
    _check(asked)
    options = asdict(asked) | asdict(reading) | asdict(filters)
    del options["each"], options["output"]
    with open_database(common, read_only=None if asked.keep is None else False) as db:
        if not asked.each:
            table = db.find_trained_on(**options)
            print_table(table, terminal.show_trained_models, common)
            return
        del options["keep"], options["control"]
        scores = db.find_trained_on_each(**options)
    if asked.output is not None:
        scores.save(asked.output)
    print_table(scores, terminal.show_data_scores, common)
    if scores.failed:
        sys.exit(EXIT_SOME_FAILED)


def _check(asked: Data) -> None:
    """Refuse options that do not go together, before any work is done."""
    if asked.each and asked.keep is not None:
        raise click.UsageError("--keep names one data set; leave out --each, or --keep")
    if asked.each and asked.control is not None:
        raise click.UsageError("--control is of one data set; leave out --each, or --control")
    if asked.output is not None and not asked.each:
        raise click.UsageError("-o writes the table of several data sets: add --each")
    if asked.output is not None:
        check_scores_ending(asked.output)
