"""The service's parts, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from importlib.resources import files
from typing import Any, TypeVar

from ...errors import DeltadexError
from ...questions.face.database import Database
from ...questions.find_similar import FindSimilar
from .answers import PageFiles, Problem
from .catalog import Freshness, Names, Readers, names_of
from .middleware import Metrics
from .searchers import MOST_PROCESSES, Give, Searchers, answer_each
from .settings import MAX_DATA, MAX_WRITES, ServiceSettings
from .snapshots import Snapshots
from .work import MOST_TOGETHER, Jobs, Line, Results, Shared, Together, Uploads, Work

Result = TypeVar("Result")


class Service(ExitStack):
    """An open catalog and what answers from it; nothing outlives the `with` block.

    Raises:
        StoreError: the catalog cannot be opened.
        EmptyCatalog: there is none.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        super().__init__()
        self.settings = settings
        self.readers = readers = Readers(
            settings.db, writable=settings.writable, engine=settings.engine
        )
        limits: Any = {"waiting": settings.max_waiting, "seconds": settings.max_seconds}
        self.work = Work(at_once=settings.max_at_work, **limits)
        beside = min(settings.max_at_work - 1, MOST_PROCESSES)
        self.searchers = Searchers(readers, settings.engine, beside, settings.max_seconds)
        self.searches = Together(self._similar_each, at_once=beside + 1, **limits)
        self.batches = Work(at_once=settings.max_batches_at_work, **limits)
        # they wait for nothing, and whoever asks again for a job is never sent away
        self.polls = Work(at_once=1, waiting=None, seconds=settings.max_seconds)
        self.jobs = Jobs(readers, settings.job_seconds)
        self.uploads = Uploads(
            memory=settings.upload_memory,
            seconds=settings.max_seconds,
            waiting=settings.max_waiting,
            warm=settings.warm,
        )
        self.data = Line("deltadex-data", readers, MAX_DATA)
        self.writes: Shared[dict[str, Any]] = Shared("deltadex-write", MAX_WRITES)
        self.additions = Line("deltadex-additions", readers, MAX_WRITES)
        self.snapshots = Snapshots(readers)
        self.results = Results()
        threads = self.work, self.searches, self.batches, self.polls, self.writes, self.additions
        self.metrics = Metrics(readers, (*threads, self.uploads, self.data), self.jobs)
        self.page = PageFiles(files(__package__.rpartition(".")[0]) / "page")
        self.freshness = Freshness(readers, with_looks=settings.warm)
        computing = (self.searchers, *threads, self.jobs, self.uploads, self.snapshots, self.data)
        # the last one is closed first
        for part in (readers, self.freshness, *reversed(computing)):
            self.callback(part.close)

    @cached_property
    def api_docs(self) -> PageFiles:
        """Swagger UI, which is large: loaded when it is first asked for; a `Problem` without it."""
        try:
            swagger = files("fastapi_swagger") / "resources"
        except ModuleNotFoundError as err:
            detail = "this page needs fastapi-swagger: pip install 'deltadex[serve]'"
            raise Problem(404, "not-found", detail) from err
        return PageFiles(swagger, files(__package__.rpartition(".")[0]) / "api_docs")

    async def ask(self, function: Callable[[Database], Result], work: Work | None = None) -> Result:
        """What the function returns for a catalog of its own thread; raises as `Work.run`."""

        def run() -> Result:
            with self.readers.catalog() as catalog:
                return function(catalog)

        return await (work or self.work).run(run)

    def _similar_each(self, asked: FindSimilar, models: list[str], give: Give) -> None:
        """Answer in a process beside, once so many wait; and here, what that has not answered."""
        if self.searches.pending > MOST_TOGETHER and self.freshness.settled.is_set():
            self.searchers.want()
        left = dict(enumerate(models))

        def answered(place: int, answer: bytes | DeltadexError) -> None:
            del left[place]
            give(place, answer)

        # who writes waits until nobody reads
        if not self.writes.pending:
            self.searchers.answer_each(asked, models, answered)
        if left:
            places, rest = list(left), list(left.values())
            answer_each(self.readers, asked, rest, lambda n, answer: give(places[n], answer))

    async def opening(self) -> dict[str, Any] | None:
        """How many percent of the indexes are open for the first time, and which families can be
        searched; None once all can."""
        if self.freshness.ready.is_set():
            return None
        names, (share, bases) = await self.polls.run(self.names), self.freshness.reached
        return {"percent": int(100 * share), "searchable": [names.shown(base) for base in bases]}

    def names(self) -> Names:
        """The families as they are shown now."""
        with self.readers.catalog() as catalog:
            return names_of(catalog)

    def known_names(self) -> Names:
        """The same; none where the catalog cannot be read, of which an error may be to be shown."""
        try:
            return self.names()
        except DeltadexError:
            return Names((), self.readers.path)
