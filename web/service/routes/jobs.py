"""Work that may take longer than its request: answered in time, or a job that is asked for."""

from __future__ import annotations

import re
from concurrent.futures import CancelledError, Future
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from ..answers import Problem, computing, reply, stopping
from ..params import JOB, ServiceIn, problems
from ..schemas import AddedAnswer, RemovedAnswer, SimilarAnswer
from ..service import Service
from ..settings import PREFIX
from ..work import is_done

router = APIRouter(tags=["jobs"])

_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})")
_ASYNC = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])")


@router.get(
    "/jobs/{job}",
    responses={200: {"model": SimilarAnswer | AddedAnswer | RemovedAnswer}, **JOB}
    | problems(403, 404, 409),
)
async def job(
    service: ServiceIn, request: Request, job: Annotated[str, Path(max_length=100)]
) -> Response:
    """What the request that began this job would have been answered, once it is done."""
    future = service.results.find(job)
    await is_done(future, service.settings.quick_seconds)
    return _answer(service, request, future, service.settings.quick_seconds)


async def answer_or_job(
    service: Service,
    request: Request,
    future: Future[dict[str, Any]],
    *,
    status: int = 200,
    goes_on: bool = True,
) -> Response:
    """What the work gives; 202 and a job where that takes longer than the client wants to wait.

    Args:
        goes_on: Also if it has not begun when the client hangs up, who knows no job yet.
    """
    seconds = _patience(request.headers.get("prefer", ""), service.settings.max_seconds)
    has_hung_up = None if goes_on else request.is_disconnected
    await is_done(future, seconds, has_hung_up)
    if has_hung_up is not None and await has_hung_up() and future.cancel():
        raise Problem(400, "hung-up", "the client did not wait for the answer")
    return _answer(service, request, future, seconds, status)


def _patience(preferred: str, most: float) -> float:
    """How long a client wants to wait, by its header `Prefer`."""
    wait = _WAIT.search(preferred)
    if wait is not None:
        return min(float(wait[1]), most)
    return 0.0 if _ASYNC.search(preferred) else most


def _answer(
    service: Service,
    request: Request,
    future: Future[dict[str, Any]],
    waited_s: float,
    status: int = 200,
) -> Response:
    if not future.done():
        job = service.results.keep(future)
        place = f"{request.scope.get('root_path', '')}{PREFIX}/jobs/{job}"
        return computing(waited_s, job=job, headers={"Location": place})
    try:
        return reply(future.result(), status)
    except CancelledError as err:
        raise stopping() from err
