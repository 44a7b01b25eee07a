"""Two data sets to be compared: as many examples of each, and none that is in both."""

from __future__ import annotations

from dataclasses import replace

from ..errors import RequestError
from .data_query import FEWEST
from .examples import Example, ExampleSet

FEWEST_MATCHED = 4 * FEWEST
"""Of each: four groups."""


def matched_examples(data: ExampleSet, control: ExampleSet) -> tuple[ExampleSet, ExampleSet]:
    """The two with examples that are in both left out, and as many of each.

    Both keep the beginning of their draw.

    Raises:
        RequestError: they are the same file, have other columns or classes, or too few differ.
    """
    if data.sha256 == control.sha256:
        raise RequestError(f"{control.source} is the same file as {data.source}")
    if data.kind != control.kind:
        raise RequestError(
            f"{data.source} has {data.kind}, {control.source} {control.kind}: name the columns of "
            "both alike with --text and --label"
        )
    classes, others = _classes(data), _classes(control)
    if classes != others:
        raise RequestError(
            f"{data.source} has the classes {_listed(classes)}, {control.source} "
            f"{_listed(others)}: a control has the same"
        )
    shared = {_content(example) for example in data.examples}
    shared &= {_content(example) for example in control.examples}
    left = [
        [example for example in one.examples if _content(example) not in shared]
        for one in (data, control)
    ]
    n = min(len(examples) for examples in left)
    if n < FEWEST_MATCHED:
        raise RequestError(
            f"{data.source} and {control.source} have {n} examples each to compare"
            + (f", as {len(shared)} are in both" if shared else "")
            + f"; at least {FEWEST_MATCHED} are needed"
        )
    first, second = (
        replace(one, examples=tuple(examples[:n]))
        for one, examples in zip((data, control), left, strict=True)
    )
    return first, second


def _content(example: Example) -> tuple[str, str, str]:
    return example.text, example.pair, example.completion


def _classes(examples: ExampleSet) -> set[str]:
    return {count.name for count in examples.classes if count.drawn}


def _listed(names: set[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:most])
    return shown + (", …" if len(names) > most else "")
