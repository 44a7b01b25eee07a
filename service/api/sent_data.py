"""Data sets that clients send: which models were trained on one, in a process beside."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.datastructures import UploadFile

from ...questions.find_trained_on.find_trained_on import FindTrainedOn
from .answers import Problem
from .service import Service
from .settings import MIB
from .work import Job, answer_in, begin_with

ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".txt")
DATA_LIMIT = 8 * MIB
"""Bytes of a data set; 512 of its examples are run through the base."""

FORM_BYTES = 1 << 16
"""Of the form around the file."""

_UNSAFE = re.compile(r"[^\w.+@-]+")


def can_run_models() -> bool:
    """Whether the extra that runs models is installed."""
    return all(find_spec(name) is not None for name in ("torch", "transformers"))


def refuse_data(sent: UploadFile) -> None:
    """Refuse what cannot be asked: another kind of file, one too long, no extra to run models."""
    if not can_run_models():
        detail = "this service runs no models: it needs pip install 'deltadex[studies]'"
        raise Problem(422, "needs-studies", detail)
    if not name_of(sent.filename or "").endswith(ENDINGS):
        raise Problem(422, "bad-data", f"data: a file of one of {', '.join(ENDINGS)}")
    if (sent.size or 0) > DATA_LIMIT:
        raise Problem(413, "body-too-long", f"data: at most {DATA_LIMIT // MIB} MiB")


def name_of(sent: str) -> str:
    """The name that the file gets here, of the name that it was sent under."""
    stem, dot, ending = PurePosixPath(sent).name.rpartition(".")
    return (_UNSAFE.sub("-", stem)[:80].lstrip(".") or "data") + dot + ending.lower()


async def begin_data(service: Service, sent: UploadFile, asked: FindTrainedOn) -> Job:
    """Ask for the models of a data set that was sent: its texts lie in a folder of their own until
    the answer is there, and nothing of them is stored."""
    name, key, line = name_of(sent.filename or ""), secrets.token_hex(8), service.data
    answer = answer_in if service.settings.allow_hub else _answer_offline
    seconds = service.settings.job_seconds

    def answered(folder: Path) -> dict[str, Any]:
        return line.answer(key, answer, replace(asked, data=folder / name), seconds)

    return await asyncio.to_thread(begin_with, {name: sent}, line, answered, key)


def _answer_offline(path: Path, asked: FindTrainedOn) -> dict[str, Any]:
    """The answer from what is on this machine; in the process beside, which asks nothing else."""
    # read by huggingface_hub when it is loaded, which transformers does
    os.environ["HF_HUB_OFFLINE"] = "1"
    return answer_in(path, asked)
