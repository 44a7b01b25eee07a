"""The studies: `db.studies.rank("imdb-0")`, `deltadex rank imdb-0`; `registry.pyi` lists them.

A study is loaded when it is first used.
"""

import re
from importlib import import_module
from pathlib import Path

_LINE = re.compile(r"^    from (\S+) import (\w+)$", re.MULTILINE)
_PLACES = {
    name: place
    for place, name in _LINE.findall(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
}

STUDIES = tuple(_PLACES)
"""The names of the methods of `Studies`."""


def record_of(name):
    """The record of a study by the name of its method; a `KeyError` where there is none."""
    return getattr(import_module(_PLACES[name], __package__), name).asked


class _Method:
    """A method of `Studies` that is made of its record when it is first used."""

    def __init__(self, name):
        self._name = name

    def __get__(self, studies, owner):
        made = getattr(import_module(_PLACES[self._name], __package__), self._name)
        made.name_in(owner, self._name)
        return getattr(owner if studies is None else studies, self._name)


class Studies:
    def __init__(self, catalog, track):
        from .study import OpenCatalog

        self._db = OpenCatalog(catalog, track)

    def ask(self, study):
        """The answer of a study whose options are given as its record."""
        return study.answer(self._db)


for _name in STUDIES:
    setattr(Studies, _name, _Method(_name))
