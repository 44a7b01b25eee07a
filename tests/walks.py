"""Counts the files that a question walks through: `python tests/walks.py [--files]`.

A walk's files are those of the package in which at least one function runs, in any thread, from
the walk's first function to the end of its last, on a small family that is made here and whose
catalog is open. What runs only because a file is imported does not count, nor do files of records
alone: their functions are made by dataclasses.
"""

import re
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

from factories import make_family, save_tokenizer, write_reviews
from starlette.testclient import TestClient

import deltadex as dx
from deltadex.indexer.run import fingerprint_member
from deltadex.service.api.server import make_app
from deltadex.service.api.service import Service
from deltadex.service.api.settings import ServiceSettings
from deltadex.store import Catalog

ROOT = f"{Path(dx.__file__).parent}/"
PACKAGED = re.compile(rf"{re.escape(ROOT)}(?!tests/|.*site-packages/)")


@contextmanager
def walk(first=None, last=None):
    """The files of a block; of the part of it from one function to the end of another."""
    files, is_open = set(), first is None

    def note(frame, event, argument):
        nonlocal is_open
        code = frame.f_code
        if event == "call":
            is_open |= first is not None and code is first.__code__
            if is_open and PACKAGED.match(code.co_filename) and not _is_imported(frame):
                files.add(code.co_filename.removeprefix(ROOT))
        elif event == "return" and last is not None and code is last.__code__:
            is_open = False

    threading.setprofile(note)
    sys.setprofile(note)
    yield files
    sys.setprofile(None)
    threading.setprofile(None)


def _is_imported(frame):
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"] != "__main__"


def walks(folder):
    """Each walk's name and files."""
    models, path = make_family(folder), folder / "family.duckdb"
    save_tokenizer(folder / "base")
    write_reviews(folder / "reviews.csv")
    with dx.open(path) as db:
        with walk(fingerprint_member, Catalog.record_all) as files:
            db.index(folder / "base", models, workers=1)
        yield "a tensor, from `fingerprint_member` to the end of `Catalog.record_all`", files
        for name, ask in {
            "find-similar": lambda: db.find_similar("a-0"),
            "find-trained-on": lambda: db.data.find_models(folder / "reviews.csv"),
            "rank": lambda: db.studies.rank("a-0"),
        }.items():
            with walk() as files:
                ask().to_json()
            yield f"`{name}`, from the call to the document", files
    with Service(ServiceSettings(db=path, warm=False)) as service:
        service.freshness.ready.wait(60.0)
        with TestClient(make_app(service), base_url="http://localhost") as client, walk() as files:
            client.get("/api/v1/similar", params={"model": "a-0"}).raise_for_status()
        yield "HTTP `similar`, from the request to the answer", files


if __name__ == "__main__":
    print("| walk | files |\n| --- | --- |")
    with tempfile.TemporaryDirectory() as made:
        for name, files in walks(Path(made)):
            print(f"| {name} | {len(files)} |")
            if "--files" in sys.argv:
                print("\n".join(f"    {file}" for file in sorted(files)))
