"""Checks of the copies of attached indexes."""

from __future__ import annotations

from collections.abc import Iterator

from ....errors import BadIndex, StoreFull
from ...published.attached_index import AttachedIndex, attached_folder
from ...published.parts import is_whole
from .checks import CheckContext, Finding, counted, listed


def check_attached(context: CheckContext) -> Iterator[Finding]:
    """Every file of every attached index has the SHA-256 with which it was fetched."""
    catalog, has_faults, n_files = context.catalog, False, 0
    for attachment, _ in catalog.attachments.all():
        folder = attached_folder(catalog.path, attachment.name)
        try:
            files = AttachedIndex(folder, attachment.manifest).manifest.data_files
            parts = [(file.name, 0, file.bytes) for file in files]
            tracked = context.track(parts, f"reading {attachment.name}")
            wrong = [
                file.name
                for file, _ in zip(files, tracked, strict=True)
                if not is_whole(folder / file.name, file)
            ]
            fault = f"missing or changed: {listed(wrong)}" if wrong else ""
            n_files += len(files)
        except BadIndex:
            fault = "its manifest is missing or changed"
        except StoreFull as err:
            fault = str(err)
        if fault:
            has_faults = True
            advice = f"`deltadex attach --refresh --name {attachment.name}` fetches it again"
            yield Finding("attached", "problem", f"{attachment.name}: {fault}", advice)
    if not has_faults:
        yield Finding("attached", "ok", f"{counted(n_files, 'file')} as fetched")
