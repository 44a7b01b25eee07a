"""The mutants of `benchmarks/mutants.py`, and the tests that are run on them."""

import ast
from pathlib import Path

import pytest
from mutating import FOLDERS, mutants_of
from mutating.reach import Reach, TestsOfLines
from mutating.score import interval

import deltadex

ROOT = Path(deltadex.__file__).parent

SOURCE = '''"""A module with 1 constant."""

LIMIT = 0.5


def choose(items: list[int], ü: int = 3) -> list[int]:
    """Not mutated: 7."""
    if not items and LIMIT < 1:
        raise ValueError(f"{1 + 1}" + "2")
    chosen = sorted(
        items,
        reverse=True,
    )
    return [item for item in zip(chosen, items, strict=True) if item][: -ü]
'''


def _said(source):
    return [str(mutant).partition(": ")[2] for mutant in mutants_of("m.py", source.encode())]


def test_the_mutants_of_a_module():
    assert _said(SOURCE) == [
        "0.5 → (0.25)",
        "0.5 → (0.75)",
        "3 → (2)",
        "3 → (4)",
        "not items → (items)",
        "not items and LIMIT < 1 → (not (not items and LIMIT < 1))",
        "not items and LIMIT < 1 → (not items or LIMIT < 1)",
        "LIMIT < 1 → (LIMIT <= 1)",
        "1 → (0)",
        "1 → (2)",
        "sorted( items, reverse=True, ) → (sorted(items))",
        "True → (False)",
        "[item for item in zip(chosen, items, strict=True) if item][: -ü] → ([])",
        "item → (not item)",
        "-ü → (ü)",
    ]


@pytest.mark.parametrize("name", FOLDERS)
def test_every_mutant_is_another_program(name):
    modules = [path for glob in FOLDERS[name].modules for path in ROOT.glob(glob)]
    assert modules
    assert all((ROOT / path).exists() for path in FOLDERS[name].tests)
    for path in modules[:1]:
        source = path.read_bytes()
        program = ast.dump(ast.parse(source))
        made = mutants_of(path.name, source)
        assert len({(m.start, m.end, m.new) for m in made}) == len(made)
        assert all(ast.dump(ast.parse(m.apply(source))) != program for m in made[:10])


def test_tests_are_those_that_reach_the_line_the_quickest_first(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE, "utf-8")
    nothing = frozenset()
    reaches = {
        "a.py::slow": Reach(2.0, frozenset({("m.py", 8), ("m.py", 10)}), nothing, True),
        "a.py::quick": Reach(1.0, frozenset({("m.py", 12)}), nothing, True),
        "a.py::shares": Reach(0.5, nothing, nothing, True),
        "a.py::prepared": Reach(3.0, frozenset({("m.py", 14)}), frozenset({("m.py", 14)}), True),
        "b.py::other": Reach(0.1, frozenset({("other.py", 8)}), nothing, True),
    }
    tests_of = TestsOfLines(reaches, tmp_path, ["m.py"])
    constant, *_, condition, call, _true, _empty, item, _minus = (
        tests_of.reaching(mutant) for mutant in mutants_of("m.py", SOURCE.encode())
    )

    assert condition == ["a.py::slow"]
    assert call == ["a.py::quick", "a.py::slow"]
    assert constant == item == ["a.py::shares", "a.py::quick", "a.py::slow", "a.py::prepared"]


@pytest.mark.parametrize(
    ("killed", "mutants", "expected"),
    [(0, 10, (0.0, 0.2775)), (9, 10, (0.5958, 0.9821)), (81, 263, (0.2553, 0.3662))],
)
def test_intervals_are_wilson_s(killed, mutants, expected):
    """The last is Newcombe's example, Statistics in Medicine 17 (1998), table I."""
    assert interval(killed, mutants) == pytest.approx(expected, abs=1e-4)
