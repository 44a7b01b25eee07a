"""Paths, text files and folders that users name, and the models below a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import SourceError
from ..checkpoint import ADAPTER_WEIGHTS

MAX_BYTES = 256 << 20
"""A line for each of the Hub's models takes a third of it."""


def resolved(text: str | Path) -> Path | None:
    """The absolute path that a text means; None where it can mean none."""
    try:
        return Path(text).expanduser().resolve()
    # NUL and surrogates; an unknown user's home, a loop of links; too long a name
    except (ValueError, RuntimeError, OSError):
        return None


def folder_at(text: str | Path) -> Path | None:
    """The folder that a text means, as it was written; None where there is none."""
    try:
        path = Path(text).expanduser()
        return path if path.is_dir() else None
    except (ValueError, RuntimeError, OSError):
        return None


def storable(name: str) -> str:
    """The name as Unicode text: what is none in a file's name is spelled out (`\\udce9`)."""
    return name.encode("utf-8", "backslashreplace").decode()


def read_text_file(path: Path, what: str) -> str:
    """A file's text in UTF-8, of a pipe too, up to the limit; `what` it is, for the message."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SourceError(f"{path}: larger than {MAX_BYTES} bytes; is it {what}?")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise SourceError(f"{path}: cannot be read as {what}: not text in UTF-8") from err
    except OSError as err:
        raise SourceError(f"{path}: cannot be read as {what}: {err.strerror}") from err


_SKIPPED_FOLDERS = {"onnx", "openvino", "__pycache__", "node_modules"}

_FULL_WEIGHTS = re.compile(
    r"(model.*\.safetensors|pytorch_model.*\.bin)(\.index\.json)?", re.DOTALL
)

NAMES_SHOWN = 3
"""Names that are shown of what is left out for one reason."""


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """A folder that looks like a model.

    Attributes:
        name: Its path from the folder that the user named; of a link, the link's.
        place: Where it is, without links; None where a link leads out.
    """

    name: Path
    place: Path | None


class FolderWalk:
    """Model folders at any depth below `root` (itself included), each of them once.

    Links to folders are followed last, in so far as they stay inside `root`. A folder in the place
    of a weight or config file makes a model too, which is refused when it is read.
    """

    def __init__(self, root: Path) -> None:
        """`root`: Absolute and without links."""
        self._root = root
        self._seen: set[Path] = set()
        self._links: list[tuple[Path, Path]] = []
        self._left_out: dict[str, list[str]] = {}

    def __iter__(self) -> Iterator[FoundFolder]:
        yield from self._below(Path(), self._root)
        for name, target in self._links:  # which grow meanwhile
            if target in self._seen:
                continue
            if target.is_relative_to(self._root):
                yield from self._below(name, target)
            elif _looks_like_model(target):
                yield FoundFolder(name, None)
            else:
                self._leave_out("links that lead out of it", name)

    @property
    def left_out(self) -> str:
        """What was left out, by reason; empty where nothing was."""
        reasons = []
        for reason, names in self._left_out.items():
            more = len(names) - NAMES_SHOWN
            shown = ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
            reasons.append(f"{shown} ({reason})")
        return "; ".join(reasons)

    def _leave_out(self, reason: str, name: Path) -> None:
        self._left_out.setdefault(reason, []).append(str(name))

    def _below(self, name: Path, place: Path) -> Iterator[FoundFolder]:
        """The models at a place and below it, by path; links are noted."""
        waiting = [(name, place)]
        while waiting:
            name, place = waiting.pop()
            if place in self._seen:
                continue
            self._seen.add(place)
            try:
                with os.scandir(place) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except OSError as err:
                if place == self._root:
                    raise SourceError(f"{place}: cannot be listed: {err.strerror}") from err
                self._leave_out("cannot be listed", name)
                continue
            folders = [entry for entry in entries if _is_folder(entry)]
            weights = {entry.name for entry in folders if entry.name.endswith(".gguf")}
            is_found = is_model({entry.name for entry in entries} - weights)
            if is_found:
                yield FoundFolder(name, place)
            inside = []
            for entry in entries:
                below = name / entry.name, place / entry.name
                if entry not in folders:
                    if not is_found and entry.is_symlink() and not below[1].exists():
                        self._leave_out("links to nothing", below[0])
                elif entry.name.startswith(".") or entry.name in _SKIPPED_FOLDERS:
                    if not entry.is_symlink() and _looks_like_model(below[1]):
                        self._leave_out(
                            "models in folders that are hidden or not of PyTorch", below[0]
                        )
                elif entry.is_symlink():
                    self._links.append((below[0], Path(os.path.realpath(below[1]))))
                else:
                    inside.append(below)
            waiting += reversed(inside)


def is_model(names: Collection[str]) -> bool:
    """Whether a folder with these file names looks like one model."""
    return (
        "adapter_config.json" in names
        or any(n in ADAPTER_WEIGHTS or n.endswith(".gguf") for n in names)
        or any(_FULL_WEIGHTS.fullmatch(n) for n in names)
        or ("config.json" in names and any(n.endswith(".safetensors") for n in names))
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _looks_like_model(folder: Path) -> bool:
    """The same of a folder that is not read; False where it cannot be listed."""
    try:
        return is_model(os.listdir(folder))
    except OSError:
        return False
