"""Which modules are mutated, and which tests are theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Folder:
    """A part of the package with its own tests.

    Attributes:
        modules: Globs, from the root of the tree.
        tests: Files and folders of tests, the same.
    """

    modules: Sequence[str]
    tests: Sequence[str]


GOLDEN = "tests/machines/test_processors.py"
"""Holds fingerprints, scores, rankings and clusters against answers that are committed."""

FOLDERS: Mapping[str, Folder] = {
    "search": Folder(["search/**/*.py"], ["tests/search", GOLDEN]),
    "fingerprint": Folder(
        ["indexer/fingerprint.py"], ["tests/fingerprint", "tests/indexer", GOLDEN]
    ),
    "adapter": Folder(
        ["indexer/adapter*.py"], ["tests/adapter", "tests/indexer/test_adapters_end_to_end.py"]
    ),
    "gate": Folder(
        ["indexer/updates.py", "indexer/delta.py"],
        ["tests/indexer"],
    ),
    "filters": Folder(["store/tables/filters.py"], ["tests/store/test_filters.py"]),
    "index": Folder(
        ["store/derived/index.py"],
        [
            "tests/store/test_index.py",
            "tests/store/test_search_index.py",
            "tests/store/test_shortlist.py",
        ],
    ),
    "indexing": Folder(["indexer/index.py"], ["tests/indexer"]),
    "laws": Folder(
        ["study/rank/*.py"],
        [
            "tests/study/test_depth_trends.py",
            "tests/study/test_effective_rank.py",
            "tests/study/test_rank_laws.py",
            "tests/study/test_rank_study.py",
        ],
    ),
}
