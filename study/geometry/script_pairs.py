"""One language in two scripts, compared layer by layer and sentence by sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ..report_json import JsonRecord
from .fertility import Fertility
from .geometry_options import GeometryOptions
from .paired_measures import ComparedGroup, PairedMeasure, compare_groups
from .scrambling import SCRAMBLED


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPair(JsonRecord):
    """One language in two scripts; every difference is first − second.

    Attributes:
        shared_ids: Texts that both have.
        first_fertility, second_fertility: Read them first: a script that is cut into more
            tokens, or into unknown tokens, differs for that reason already.
    """

    language: str
    first: str
    second: str
    shared_ids: int
    first_fertility: Fertility | None
    second_fertility: Fertility | None
    measures: tuple[PairedMeasure, ...]


def compare_scripts(
    groups: Sequence[ComparedGroup], options: GeometryOptions
) -> tuple[ScriptPair, ...]:
    """Every two groups named `language_ScriptA` and `language_ScriptB`, Latin script first."""
    by_language: dict[str, list[ComparedGroup]] = {}
    for group in groups:
        language, _, script = group.geometry.group.rpartition("_")
        if language and script and not script.endswith(SCRAMBLED):
            by_language.setdefault(language, []).append(group)
    return tuple(
        ScriptPair(
            language=language,
            first=first.geometry.group,
            second=second.geometry.group,
            shared_ids=len(first.ids.keys() & second.ids.keys()),
            first_fertility=first.geometry.fertility,
            second_fertility=second.geometry.fertility,
            measures=compare_groups(first, second, options),
        )
        for language, scripts in by_language.items()
        for first, second in combinations(sorted(scripts, key=_latin_first), 2)
    )


def _latin_first(script: ComparedGroup) -> tuple[bool, str]:
    return not script.geometry.group.endswith("_Latn"), script.geometry.group
