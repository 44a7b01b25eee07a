"""Tests in a forked process that has everything but deltadex imported."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from .mutants import Mutant
from .reach import Reach, Recorder
from .tree import Tree

LIBRARIES = Path(pytest.__file__).parents[1]
OPTIONS = (
    *("-p", "no:cacheprovider", "-m", "not slow", "--tb=line", "--rootdir=tests"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "jaxtyping._pytest_plugin"),
)
PROFILE = "mutants"
"""Of hypothesis: as in `make test`, but a failing example is not made smaller."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the tests said of a mutant.

    Attributes:
        killer: The first test that failed; empty if the tests could not be loaded.
        seconds: Of the clock.
    """

    fate: str
    killer: str
    seconds: float


class Trials:
    """Runs of pytest in a tree, each in its own process."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self._tree, self._folder = tree, folder

    def record(self, tests: Sequence[str], modules: Sequence[str]) -> Mapping[str, Reach]:
        """Run tests without a mutant and return what each reaches.

        What they import of libraries is imported here too, for the forks to come.
        """
        recorder = Recorder(self._tree.path, modules)

        def run() -> tuple[int, Mapping[str, Reach], list[str]]:
            code = pytest.main([*OPTIONS, *tests], plugins=[recorder])
            return code, recorder.reaches, _loaded_libraries()

        answer = self._forked(run, 3600.0)
        if answer is None or answer[0] != 0:
            output = (self._folder / "output").read_text("utf-8", "replace")
            sys.exit(f"{output[-4000:]}\nthe tests fail without a mutant")
        reaches: Mapping[str, Reach] = answer[1]
        for name in answer[2]:
            with suppress(ImportError):
                import_module(name)
        gc.freeze()
        return reaches

    def judge(self, mutant: Mutant, tests: Sequence[str], limit_s: float) -> Result:
        """Run tests on a mutant until one fails or the time is over."""
        chosen = _Chosen(tests)
        files = dict.fromkeys(f"tests/{test.partition('::')[0]}" for test in tests)

        def run() -> tuple[int, str]:
            sys.dont_write_bytecode = True
            code = pytest.main([*OPTIONS, "-x", *files], plugins=[chosen])
            return code, chosen.failed

        start = time.monotonic()
        with self._tree.mutated(mutant):
            answer = self._forked(run, limit_s)
        seconds = time.monotonic() - start
        if answer is None:
            return Result("timeout", "", seconds)
        code, killer = answer
        return Result("survived" if code in (0, 5) else "killed", killer, seconds)

    def _forked(self, run: Any, limit_s: float) -> Any:
        """Return what a function returns in a fork; None if it takes longer or dies."""
        answer, temporary = self._folder / "answer", self._folder / "temporary"
        answer.unlink(missing_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            self._work(run, answer, temporary)
        deadline, ended = time.monotonic() + limit_s, 0
        try:
            while not (ended := os.waitpid(child, os.WNOHANG)[0]) and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            if not ended:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
        return pickle.loads(answer.read_bytes()) if answer.exists() else None

    def _work(self, run: Any, answer: Path, temporary: Path) -> None:
        """What the fork does; never returns."""
        try:
            os.setsid()
            output = os.open(self._folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.chdir(self._tree.path)
            os.environ["PYTHONPATH"] = str(self._tree.path.parent)
            os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
            os.environ["TMPDIR"] = str(temporary)
            sys.path.insert(0, str(self._tree.path.parent))
            _register_profile()
            said = pickle.dumps(run())
            partial = answer.with_suffix(".partial")
            partial.write_bytes(said)
            partial.rename(answer)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


class _Chosen:
    """A plugin of pytest: these tests only, file by file, and the first that fails."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._place]
        # Files stay together, since their fixtures would be made again and again.
        files = dict.fromkeys(test.partition("::")[0] for test in self._place)
        order = {file: place for place, file in enumerate(files)}
        chosen.sort(
            key=lambda item: (
                order[item.nodeid.partition("::")[0]],
                self._place[item.nodeid],
            )
        )
        items[:] = chosen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _loaded_libraries() -> list[str]:
    """Return the modules of installed packages that are loaded, in the order of loading."""
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
    return [name for name, file in files.items() if file and LIBRARIES in Path(file).parents]


def _register_profile() -> None:
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        PROFILE,
        settings.get_profile("ci"),
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile(PROFILE)
