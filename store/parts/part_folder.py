"""A folder of parts, on this machine or at any address that fsspec opens."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ...errors import StoreDamaged, StoreError, StoreFull
from ..files import make_folder, write_atomically
from ..tables.models import Known
from .part_rows import KNOWN_COLUMNS, REMEDY, Part, part_bytes, read_known, read_part

log = logging.getLogger(__name__)

LONGEST_NAME = 120
"""Characters of a folder's name: file systems take 255 bytes."""


class PartFolder:
    """Parts by base and recipes: `base=…/recipe=…/part-<lease>.parquet`.

    A part appears under its name when it is complete, and does not change.
    """

    def __init__(self, url: str) -> None:
        """The folder at a path, or at an address such as `s3://bucket/parts`.

        Raises:
            StoreError: fsspec cannot open such an address here.
        """
        import fsspec

        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError, OSError) as err:
            raise StoreError(
                f"{url}: cannot be opened: {getattr(err, 'strerror', None) or err}"
            ) from err
        self.is_local = "file" in _protocols(self._files)
        # workers have other working folders
        self.url = str(self._root) if self.is_local else url

    def path_of(self, part: Part) -> str:
        """Where a part is, from the folder."""
        recipes = "+".join(recipe.id for recipe in part.recipes)
        return f"{_folder(part.base)}/recipe={recipes}/{_name(part.lease)}"

    def write(self, part: Part) -> str:
        """Write a part, in place of one of the same lease; returns its path from the folder.

        Raises:
            StoreFull: the system refuses.
        """
        path, content = self.path_of(part), part_bytes(part)
        if self.is_local:
            target = Path(self._root) / path
            make_folder(target.parent)
            write_atomically(target, content)
            return path
        place = f"{self._root}/{path}"
        try:
            self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
            # fsspec's transaction: the file has its name once it is complete
            with self._files.transaction, self._files.open(place, "wb") as file:
                file.write(content)
        except OSError as err:
            raise StoreFull(f"{self.url}/{path}: {getattr(err, 'strerror', None) or err}") from err
        return path

    def paths(self, base: str | None = None) -> list[str]:
        """Every part of a family, or of all, from the folder, sorted.

        Raises:
            StoreError: the folder cannot be listed.
        """
        root = self._root if base is None else f"{self._root}/{_folder(base)}"
        try:
            self._files.invalidate_cache()
            listed = self._files.find(root) if self._files.exists(root) else []
        except OSError as err:
            raise StoreError(
                f"{self.url}: cannot be listed: {getattr(err, 'strerror', None) or err}"
            ) from err
        names = (str(path)[len(self._root) :].lstrip("/") for path in listed)
        return sorted(n for n in names if _is_part(n.rpartition("/")[2]))

    def read(self, path: str) -> Part:
        """A part.

        Raises:
            StoreDamaged: it is not what was written.
            StoreError: it cannot be read.
        """
        name = f"{self.url}/{path}"
        part = read_part(self._content(path), name)
        if PurePosixPath(path).name != _name(part.lease):
            raise StoreDamaged(f"{name}: holds the part {_name(part.lease)}; {REMEDY}")
        return part

    def known(self, base: str) -> dict[str, Known]:
        """What a second run compares with models' files, of every model of a family's parts.

        A damaged part counts as if it were not there.
        """
        known: dict[str, Known] = {}
        for row in self._known_rows(base):
            known[row["id"]] = Known(
                **{name: row[name] for name in (*KNOWN_COLUMNS[1:], "recipes")}
            )
        return known

    def remove_family(self, base: str) -> None:
        """Remove a family's parts, what killed writers left, and folders that are empty then."""
        paths = self.paths(base)
        for path in paths:
            self._remove(path)
        if self.is_local:
            for leftover in (Path(self._root) / _folder(base)).rglob(".part-*.partial"):
                leftover.unlink(missing_ok=True)
            folders = {folder for path in paths for folder in PurePosixPath(path).parents}
            for folder in sorted(folders, reverse=True):
                with suppress(OSError):
                    (Path(self._root) / folder).rmdir()

    def _remove(self, path: str) -> None:
        try:
            self._files.rm_file(f"{self._root}/{path}")
        except FileNotFoundError:
            pass
        except OSError as err:
            log.warning("%s/%s: cannot be removed: %s", self.url, path, err)

    def _known_rows(self, base: str) -> Iterator[dict[str, Any]]:
        for path in self.paths(base):
            try:
                self._require_file(path)
                with self._files.open(f"{self._root}/{path}", "rb") as file:
                    rows = read_known(file, f"{self.url}/{path}")
            except StoreDamaged as err:
                log.warning("%s; it counts as if it were not there: delete it", err)
            except OSError as err:
                raise StoreError(
                    f"{self.url}/{path}: cannot be read: {getattr(err, 'strerror', None) or err}"
                ) from err
            else:
                yield from map(dict, rows)

    def _require_file(self, path: str) -> None:
        """Raises `StoreDamaged` for a pipe or device, which has no end."""
        if self.is_local and not self._files.isfile(f"{self._root}/{path}"):
            raise StoreDamaged(f"{self.url}/{path}: no file; {REMEDY}")

    def _content(self, path: str) -> bytes:
        self._require_file(path)
        try:
            content = self._files.cat_file(f"{self._root}/{path}")
        except OSError as err:
            raise StoreError(
                f"{self.url}/{path}: cannot be read: {getattr(err, 'strerror', None) or err}"
            ) from err
        return bytes(content)


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _name(lease: str) -> str:
    return f"part-{lease}.parquet"


def _folder(base: str) -> str:
    name = quote(base, safe="")
    if len(name) > LONGEST_NAME:
        name = f"{name[-60:]}-{hashlib.sha256(base.encode()).hexdigest()[:16]}"
    return f"base={name}"


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet")
