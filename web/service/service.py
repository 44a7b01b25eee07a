"""The service's parts, opened and closed together."""

from __future__ import annotations

from .freshness import Freshness
from .jobs import Jobs
from .metrics import Metrics
from .names import Names
from .page import PageFiles
from .readers import Open, Readers, names_of, open_catalog
from .settings import ServiceSettings
from .uploads import Uploads
from .work import Work, Writes


class Service:
    """An open catalog, the threads and processes that answer from it, and their numbers.

    A context manager; nothing of it outlives the block.
    """

    def __init__(self, settings: ServiceSettings, readers: Readers) -> None:
        self.settings = settings
        self.readers = readers
        self.work, self.long_work = (
            Work(at_once=at_once, waiting=settings.max_waiting, seconds=settings.max_seconds)
            for at_once in (settings.max_at_work, settings.max_long_at_work)
        )
        self.jobs = Jobs(
            readers, seconds=settings.job_seconds, quick_seconds=settings.quick_seconds
        )
        self.uploads = Uploads(
            memory=settings.upload_memory,
            seconds=settings.max_seconds,
        )
        self.writes = Writes(seconds=settings.max_seconds)
        self.metrics = Metrics(readers, (self.work, self.long_work), self.jobs)
        self.page = PageFiles()
        self.freshness = Freshness(readers)

    @classmethod
    def open(cls, settings: ServiceSettings, open: Open | None = None) -> Service:
        """The service over the catalog of its settings, getting ready.

        Raises:
            StoreError: the catalog cannot be opened.
            EmptyCatalog: there is none.
        """
        opened = open or (lambda: open_catalog(settings.db, writable=settings.writable))
        return cls(settings, Readers(opened))

    @property
    def is_ready(self) -> bool:
        """Whether every family can be searched."""
        return self.freshness.is_ready

    def names(self) -> Names:
        """The families as they are shown now."""
        with self.readers.catalog() as catalog:
            return names_of(catalog)

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether it became ready in that time."""
        return self.freshness.wait_until_ready(seconds)

    def close(self) -> None:
        self.work.close()
        self.long_work.close()
        self.writes.close()
        self.jobs.close()
        self.uploads.close()
        self.freshness.close()
        self.readers.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
