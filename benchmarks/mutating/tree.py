"""A copy of the package in which one module at a time is a mutant."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .mutants import Mutant, mutants_of


class Tree:
    """The files that git lists, copied to a folder under the package's name."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.path = folder / "deltadex"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
        for name in filter(None, os.fsdecode(listed).split("\0")):
            if (root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.path / name)

    def modules(self, globs: Iterable[str]) -> list[str]:
        """Return the modules that match, from the root, each once, in order."""
        found = {path for glob in globs for path in self.path.glob(glob)}
        return sorted(str(path.relative_to(self.path)) for path in found)

    def mutants(self, module: str) -> list[Mutant]:
        """Return every mutant of a module."""
        return mutants_of(module, (self.path / module).read_bytes())

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Hold the mutant in place of the module.

        Its time is another one, so that Python does not load what it had compiled of the module.
        """
        path = self.path / mutant.path
        source, state = path.read_bytes(), path.stat()
        try:
            path.write_bytes(mutant.apply(source))
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 10**10))
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
