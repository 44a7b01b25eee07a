"""The console of all tables and progress."""

from __future__ import annotations

from rich.console import Console


class Screen(Console):
    """A console of rich, which otherwise ends the process where its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Write no more to standard error; of standard output, the command line hears."""
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError
