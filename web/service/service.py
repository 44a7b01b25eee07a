"""The service's parts, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...database import Database
from .answers import PageFiles
from .catalog import Freshness, Names, Readers, names_of
from .middleware import Metrics
from .settings import MAX_WRITES, ServiceSettings
from .work import Jobs, Results, Shared, Uploads, Work

Result = TypeVar("Result")


class Service:
    """An open catalog and what answers from it; nothing outlives the `with` block.

    Raises:
        StoreError: the catalog cannot be opened.
        EmptyCatalog: there is none.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.readers = readers = Readers(
            settings.db, writable=settings.writable, engine=settings.engine
        )
        self.work, self.batches, self.polls = (
            Work(at_once=at_once, waiting=settings.max_waiting, seconds=settings.max_seconds)
            for at_once in (settings.max_at_work, settings.max_batches_at_work, 1)
        )
        self.jobs = Jobs(
            readers, seconds=settings.job_seconds, quick_seconds=settings.quick_seconds
        )
        self.uploads = Uploads(
            memory=settings.upload_memory,
            seconds=settings.max_seconds,
            waiting=settings.max_waiting,
            warm=settings.warm,
        )
        self.writes: Shared[dict[str, Any]] = Shared("deltadex-write", MAX_WRITES)
        self.results = Results()
        lines = (self.work, self.batches, self.polls, self.uploads.line, self.writes)
        self.metrics = Metrics(readers, lines, self.jobs)
        self.page = PageFiles()
        self.freshness = Freshness(readers)

    async def ask(self, function: Callable[[Database], Result], work: Work | None = None) -> Result:
        """What the function returns for a catalog of its own thread; raises as `Work.run`."""

        def run() -> Result:
            with self.readers.catalog() as catalog:
                return function(catalog)

        return await (work or self.work).run(run)

    def names(self) -> Names:
        """The families as they are shown now."""
        with self.readers.catalog() as catalog:
            return names_of(catalog)

    def close(self) -> None:
        computing = (self.work, self.batches, self.polls, self.writes, self.jobs, self.uploads)
        for part in (*computing, self.freshness, self.readers):
            part.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
