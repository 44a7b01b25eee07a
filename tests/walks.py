"""Counts the files that a question walks through: `python tests/walks.py [--files]`.

A walk's files are those of the package in which at least one function runs, in any thread, from
the walk's first function to the end of its last, on a small family that is made here and whose
catalog is open. What runs only because a file is imported does not count, nor do files of records
alone: their functions are made by dataclasses.
"""

import sys
import tempfile
import threading
from pathlib import Path

from factories import make_family, save_tokenizer, write_reviews
from starlette.testclient import TestClient

import deltadex as dx
from deltadex.indexer.run import fingerprint_member
from deltadex.service.api import Service, ServiceSettings, make_app
from deltadex.store import Catalog

TESTS = str(Path(__file__).parent)
ROOT = f"{Path(dx.__file__).parent}/"


class Walk:
    """The files of a block; of the part of it from one function to the end of another."""

    def __init__(self, first=None, last=None):
        self.files = set()
        self._codes = set()
        self._first, self._last = (function and function.__code__ for function in (first, last))
        self._is_open = first is None

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self.files

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame, event, argument):
        code = frame.f_code
        if event == "return" and code is self._last:
            self._is_open = False
        if event != "call":
            return
        self._is_open |= code is self._first
        if self._is_open and code not in self._codes and _is_counted(frame):
            self._codes.add(code)
            self.files.add(code.co_filename.removeprefix(ROOT))


def _is_counted(frame):
    """Whether a file of the package is at work, and not only imported."""
    path = frame.f_code.co_filename
    if not path.startswith(ROOT) or path.startswith(TESTS) or "/site-packages/" in path:
        return False
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is None or frame.f_globals["__name__"] == "__main__"


def walks(folder):
    """Each walk's name and files."""
    models, path = make_family(folder), folder / "family.duckdb"
    save_tokenizer(folder / "base")
    write_reviews(folder / "reviews.csv")
    with dx.open(path) as db:
        with Walk(fingerprint_member, Catalog.record_all) as files:
            db.index(folder / "base", models, workers=1)
        yield "a tensor, from `fingerprint_member` to the end of `Catalog.record_all`", files
        for name, ask in {
            "find-similar": lambda: db.find_similar("a-0"),
            "find-trained-on": lambda: db.data.find_models(folder / "reviews.csv"),
            "rank": lambda: db.studies.rank("a-0"),
        }.items():
            with Walk() as files:
                ask().to_json()
            yield f"`{name}`, from the call to the document", files
    with Service(ServiceSettings(db=path, warm=False)) as service:
        service.freshness.ready.wait(60.0)
        with TestClient(make_app(service), base_url="http://localhost") as client, Walk() as files:
            client.get("/api/v1/similar", params={"model": "a-0"}).raise_for_status()
        yield "HTTP `similar`, from the request to the answer", files


if __name__ == "__main__":
    print("| walk | files |\n| --- | --- |")
    with tempfile.TemporaryDirectory() as made:
        for name, files in walks(Path(made)):
            print(f"| {name} | {len(files)} |")
            if "--files" in sys.argv:
                print("\n".join(f"    {file}" for file in sorted(files)))
