"""Which of a repository's files are its weights: the same choice as for a local folder."""

from __future__ import annotations

from collections.abc import Iterable

ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
FULL_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def adapter_file(files: Iterable[str], subfolder: str = "") -> str | None:
    """The file with an adapter's weights; safetensors before `.bin`."""
    names = set(_inside(files, subfolder))
    return next((name for name in ADAPTER_WEIGHTS if name in names), None)


def full_file(files: Iterable[str], subfolder: str = "") -> str | None:
    """The weight file of a full checkpoint, or the index of its shards.

    safetensors before `.bin`, one file before shards; failing those, the only
    safetensors file that is not an adapter.
    """
    names = set(_inside(files, subfolder))
    found = next((name for name in FULL_WEIGHTS if name in names), None)
    if found is not None:
        return found
    others = [n for n in names if n.endswith(".safetensors") and not n.startswith("adapter_")]
    return others[0] if len(others) == 1 else None


def _inside(files: Iterable[str], subfolder: str) -> list[str]:
    prefix = f"{subfolder.strip('/')}/" if subfolder.strip("/") else ""
    inside = [name[len(prefix) :] for name in files if name.startswith(prefix)]
    return [name for name in inside if "/" not in name]
