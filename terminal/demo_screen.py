"""What the demo shows while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from rich.console import Console

from .progress import RunProgress
from .tables import show_evaluation, show_neighbours, show_report

_SHOW: Mapping[str, Callable[[Any], None]] = {
    "index": show_report,
    "eval": show_evaluation,
    "neighbours": show_neighbours,
}


@runtime_checkable
class TrainedModel(Protocol):
    """A model that the demo has just trained."""

    @property
    def model(self) -> str: ...

    @property
    def accuracy(self) -> float: ...

    @property
    def done(self) -> int: ...

    @property
    def total(self) -> int: ...


class DemoScreen:
    """Headings and a line a model on stderr, tables on stdout; silence when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self.progress = RunProgress(quiet=quiet)

    def __enter__(self) -> DemoScreen:
        self.progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.__exit__(kind, error, trace)

    def heading(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/]")

    def trained(self, model: TrainedModel) -> None:
        place = f"{model.done:>2}/{model.total}"
        self._console.print(f"  {place}  {model.model:24} held-out accuracy {model.accuracy:.2f}")

    def document(self, kind: str, document: Mapping[str, Any]) -> None:
        if not self._quiet:
            _SHOW[kind](document)
