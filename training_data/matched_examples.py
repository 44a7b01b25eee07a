"""Two data sets to be compared: as many examples of each, and none that is in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import RequestError
from .data_query import FEWEST
from .examples import Example, ExampleSet
from .examples.sample import places_of_every_class

FEWEST_MATCHED = 4 * FEWEST
"""Of each: four groups."""


def matched_examples(
    data: ExampleSet, control: ExampleSet
) -> tuple[ExampleSet, ExampleSet, tuple[str, ...]]:
    """The two with as many examples of each, and sentences about what was left out.

    Left out are examples that are in both, and those of a class that one of the files lacks. Both
    keep the beginning of their draw, with one example at least of each class.

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
    classes, others = ({count.name for count in one.classes} for one in (data, control))
    alone = classes ^ others
    if alone and len(classes & others) < 2:
        raise RequestError(
            f"{data.source} has the classes {_listed(classes)}, {control.source} "
            f"{_listed(others)}: a control has the same"
        )
    texts = [
        {_content(example) for example in one.examples if example.label not in alone}
        for one in (data, control)
    ]
    shared = texts[0] & texts[1]
    left = [
        [
            example
            for example in one.examples
            if example.label not in alone and _content(example) not in shared
        ]
        for one in (data, control)
    ]
    n = min(map(len, left))
    notes = []
    if alone:
        notes.append(f"left out: classes that only one of the two has ({_listed(alone)})")
    if shared:
        notes.append(
            f"left out: {len(shared)} of {len(data.examples)} examples "
            f"({len(shared) / len(data.examples):.0%}) that {control.source} has too; a control "
            "shares none"
        )
    if n < FEWEST_MATCHED:
        raise RequestError(
            f"{data.source} and {control.source} have {n} examples each to compare"
            f"{'; '.join(['', *notes])}; at least {FEWEST_MATCHED} are needed"
        )
    first, second = (
        replace(one, examples=_beginning(examples, n, are_classes=bool(one.classes)))
        for one, examples in zip((data, control), left, strict=True)
    )
    return first, second, tuple(notes)


def _beginning(examples: Sequence[Example], n: int, *, are_classes: bool) -> tuple[Example, ...]:
    labels = [example.label if are_classes else None for example in examples]
    return tuple(examples[place] for place in places_of_every_class(labels, n))


def _content(example: Example) -> tuple[str, str, str]:
    return example.text, example.pair, example.completion


def _listed(names: set[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:most])
    return shown + (", …" if len(names) > most else "")
