"""Which lines every test runs, and how long it takes."""

from __future__ import annotations

import ast
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from .mutants import Mutant

Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reach:
    """What one test runs.

    Attributes:
        seconds: Of processor time, fixtures included, under the recorder.
        lines: Of watched modules, from the root of the tree.
        prepared: Those of them that a fixture ran, which the file's other tests may share.
        passed: As it must without a mutant.
    """

    seconds: float
    lines: frozenset[Line]
    prepared: frozenset[Line]
    passed: bool


class Recorder:
    """A plugin of pytest that traces each test's lines in the watched modules."""

    def __init__(self, root: Path, modules: Sequence[str]) -> None:
        self.reaches: dict[str, Reach] = {}
        self._names = {str(root / module): module for module in modules}
        self._lines: set[Line] = set()
        self._prepared: set[Line] = set()
        self._passed = True
        self._loading: dict[str, set[Line]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """What a file runs when it is loaded, for the values of its parameters."""
        if not isinstance(collector, pytest.Module):
            return (yield)
        self._lines = self._loading[collector.nodeid] = set()
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._lines = set(self._loading[_file(item.nodeid)])
        self._prepared, self._passed = set(), True
        start = time.process_time()
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.reaches[item.nodeid] = Reach(
                time.process_time() - start,
                frozenset(self._lines),
                frozenset(self._prepared),
                self._passed,
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self._prepared = set(self._lines)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed = self._passed and not report.failed

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._names:
            return None
        return self._step(frame, event, argument)

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        self._lines.add((self._names[frame.f_code.co_filename], frame.f_lineno))
        return self._step


class TestsOfLines:
    """The tests that reach a mutant, quickest first."""

    __test__ = False

    def __init__(self, reaches: Mapping[str, Reach], root: Path, modules: Sequence[str]) -> None:
        self.reaches = reaches
        self._sources = {module: (root / module).read_text("utf-8") for module in modules}
        self._inside = {name: _lines_in_functions(text) for name, text in self._sources.items()}

    def reaching(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the mutant's statement.

        If it runs when its module is loaded: those that run a function of the module or, where it
        binds a name, of any watched module that has that name.
        """
        if mutant.reached != (0, 0):
            first, last = mutant.reached
            wanted = {(mutant.path, line) for line in range(first, last + 1)}
        else:
            modules = {mutant.path} | {
                module
                for module, source in self._sources.items()
                if any(name in source for name in mutant.names)
            }
            wanted = {(module, line) for module in modules for line in self._inside[module]}
        sharing = {_file(test) for test, reach in self.reaches.items() if wanted & reach.prepared}
        chosen = [
            test
            for test, reach in self.reaches.items()
            if wanted & reach.lines or _file(test) in sharing
        ]
        return sorted(chosen, key=lambda test: self.reaches[test].seconds)

    def seconds(self, tests: Sequence[str]) -> float:
        """Return what these tests take together."""
        return sum(self.reaches[test].seconds for test in tests)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _lines_in_functions(source: str) -> set[int]:
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        line
        for function in functions
        for line in range(function.body[0].lineno, (function.end_lineno or 0) + 1)
    }
