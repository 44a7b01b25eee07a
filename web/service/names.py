"""Names and messages of a catalog, without the paths of its machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import RequestError, offered

_PATH = re.compile(r"(?<![\w.:/~@-])(?:~?(?:/[\w.@+=,~-]+){2,}/?|[A-Za-z]:\\[^\s'\",;]+)")
_OPEN_SOURCES = ("", "hub", "upload")
_SHOWN_SOURCES = {"": "hub"}
_OPTIONS = re.compile(r"--(base|where|recipe|exclude|dataset|author)\b")


class Names:
    """Families by the names that are shown: a folder by its last parts, as few as tell it."""

    def __init__(self, bases: Sequence[str], catalog_path: Path) -> None:
        self._catalog_path = catalog_path
        self._shown = _short_names(bases)
        self._meant = {shown: base for base, shown in self._shown.items()}

    @property
    def bases(self) -> list[str]:
        """The families as they are shown, sorted."""
        return sorted(self._meant)

    def shown(self, base: str) -> str:
        """A base's name without its folder's place."""
        return self._shown.get(base) or _last_part(base)

    def meant(self, base: str) -> str:
        """The base that a shown name stands for; any other name stays as it is.

        Raises:
            RequestError: it is a path, which no request needs.
        """
        if base in self._meant:
            return self._meant[base]
        if base.startswith(("/", "~", ".")) or "\\" in base:
            raise RequestError(f"no family of {base!r}{offered(base, self.bases)}")
        return base

    def redact(self, text: str, source: str = "") -> str:
        """A sentence with every path of this machine cut to its last part."""
        for place in (source, str(self._catalog_path), *self._shown):
            if len(place) > 1 and place.startswith("/"):
                below = re.compile(re.escape(place) + r"(?:/[^\s'\",:;]+|(?![\w.-]))")
                text = below.sub(lambda match: self.shown(match[0]), text)
        return _PATH.sub(lambda match: self.shown(match[0]), text)

    def problem_text(self, text: str) -> str:
        """An error's message as a client may read it: no paths, no options of commands."""
        return _OPTIONS.sub(r"\1", self.redact(text))

    def model(self, model: Mapping[str, Any]) -> dict[str, Any]:
        """A model's document as `ls --json` has it, without paths."""
        source = model["source"]
        document = dict(model)
        document["base"] = self.shown(model["base"])
        document["source"] = (
            _SHOWN_SOURCES.get(source, source) if source in _OPEN_SOURCES else "local"
        )
        if model["base_raw"] is not None:
            document["base_raw"] = self.base_raw(model["base_raw"])
        if model["reason"] is not None:
            document["reason"] = self.redact(model["reason"], source)
        document["notes"] = [self.redact(note, source) for note in model["notes"]]
        return document

    def base_raw(self, name: str) -> str:
        """The base as a model names it; a path by its last part."""
        is_path = name.startswith(("/", "~", ".")) or "\\" in name
        return self.shown(name) if is_path else name

    def with_bases(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A small document with every `base` in it as it is shown."""
        return {key: self._value(key, value) for key, value in document.items()}

    def _value(self, key: str, value: Any) -> Any:
        if key == "base" and isinstance(value, str):
            return self.shown(value)
        if key == "by_base" and isinstance(value, Mapping):
            return {self.shown(base): group for base, group in value.items()}
        if isinstance(value, Mapping):
            return self.with_bases(value)
        if isinstance(value, list):
            return [self.with_bases(v) if isinstance(v, Mapping) else v for v in value]
        return value


def _short_names(bases: Sequence[str]) -> dict[str, str]:
    """Folders by their last part; by one more, and one more, while two share a name."""
    parts = {base: _parts(base) for base in bases}
    length = dict.fromkeys(bases, 1)

    def name(base: str) -> str:
        return "/".join(parts[base][-length[base] :]) if parts[base] else base

    for _ in range(max((len(p) for p in parts.values()), default=0)):
        for base in _clashing(bases, name):
            length[base] = min(length[base] + 1, len(parts[base]) or 1)
    taken: dict[str, str] = {}
    for base in bases:
        shown, number = name(base), 2
        while shown in taken.values():
            shown, number = f"{name(base)} ({number})", number + 1
        taken[base] = shown
    return taken


def _clashing(bases: Sequence[str], name: Callable[[str], str]) -> list[str]:
    shown = [name(base) for base in bases]
    return [base for base in bases if shown.count(name(base)) > 1]


def _parts(base: str) -> tuple[str, ...]:
    """The parts of a folder's path; none for a name, which is shown as it is."""
    return PurePosixPath(base).parts[1:] if base.startswith("/") else ()


def _last_part(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1] or path
