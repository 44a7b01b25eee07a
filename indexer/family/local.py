"""Members of a family in a folder: every transformers or PEFT folder below it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as _replace
from pathlib import Path
from typing import Any

from ...errors import ModelError, SourceError
from ...records import ModelRecord
from ..checkpoint import quantization, read_json, read_start, signature
from ..words import text_or_none
from .card import MAX_CARD_CHARS, card_bases, parents_note, split_card
from .dataset_names import label_of
from .member import Member
from .paths import storable

_SKIPPED_FOLDERS = {"onnx", "openvino", "__pycache__", "node_modules"}
_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_FULL_WEIGHTS = re.compile(
    r"^(model.*\.safetensors(\.index\.json)?|pytorch_model.*\.bin(\.index\.json)?)$"
)
_STEP_FOLDER = re.compile(r"/?(checkpoint[-_][^/]*|(step|epoch)[-_]?\d+)$", re.IGNORECASE)


def find_models(folder: Path) -> Iterator[Path]:
    """Model folders at any depth below `folder` (itself included), sorted by path.

    Links to folders are not followed, so that a link cannot lead out or round in circles.

    Raises:
        SourceError: `folder` is not a folder that can be listed.
    """
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    denied: list[OSError] = []
    for path, subfolders, names in os.walk(folder, onerror=denied.append):
        subfolders[:] = sorted(
            s for s in subfolders if not s.startswith(".") and s not in _SKIPPED_FOLDERS
        )
        if is_model(names):
            yield Path(path)
    if denied and Path(denied[0].filename) == folder:
        raise SourceError(f"{folder}: cannot be listed: {denied[0].strerror}")


def is_model(names: list[str]) -> bool:
    """Whether a folder with these file names looks like one model."""
    return (
        "adapter_config.json" in names
        or any(n in _ADAPTER_WEIGHTS or n.endswith(".gguf") for n in names)
        or any(_FULL_WEIGHTS.match(n) for n in names)
        or ("config.json" in names and any(n.endswith(".safetensors") for n in names))
    )


def read_member(folder: Path, *, id: str, base: str) -> Member:
    """What the small files of one model folder say; never raises for bad ones.

    Args:
        folder: Its absolute path, without links.
    """
    id = storable(id)
    record = ModelRecord(id=id, base=base, source=storable(str(folder)), run=_run_of(id))
    try:
        return _describe(folder, record)
    except ModelError as err:
        return Member(record=record, folder=folder, refusal=err)
    except OSError as err:
        refusal = ModelError("unreadable", f"{err.filename or folder}: {err.strerror}")
        return Member(record=record, folder=folder, refusal=refusal)


def _describe(folder: Path, record: ModelRecord) -> Member:
    names = os.listdir(folder)
    adapter = "adapter_config.json" in names or any(n in _ADAPTER_WEIGHTS for n in names)
    front, text = _read_card(folder) if "README.md" in names else ({}, "")
    label = label_of(name=record.id, card=front, text=text)
    weights = [folder / n for n in names if _is_weight(n, adapter=adapter)]
    record = _replace(
        record,
        signature=signature(folder),
        kind="adapter" if adapter else "full",
        method="lora" if adapter else "full",
        dataset=label.dataset,
        dataset_raw=label.raw,
        label_source=label.source,
        license=text_or_none(front.get("license")),
        task=text_or_none(front.get("pipeline_tag")),
        bytes_total=sum(w.stat().st_size for w in weights),
        notes=parents_note(tuple(_claims(card_bases(front)))),
    )
    try:
        if adapter:
            return _describe_adapter(Member(record=record, folder=folder), names, front)
        config = read_json(folder / "config.json") if "config.json" in names else None
    except ModelError as err:
        return Member(record=record, folder=folder, refusal=err)
    scheme = quantization(config, (), names)
    claims = _claims([*card_bases(front), (config or {}).get("_name_or_path")])
    return Member(
        record=_replace(record, base_raw=claims[0]) if claims else record,
        folder=folder,
        config=config,
        claims=claims,
        refusal=ModelError("quantized", f"weights are stored as {scheme}") if scheme else None,
    )


def _describe_adapter(member: Member, names: list[str], front: Mapping[str, Any]) -> Member:
    folder = member.folder
    assert folder is not None
    config = None
    if "adapter_config.json" in names:
        config = read_json(folder / "adapter_config.json")
    claims = _claims([(config or {}).get("base_model_name_or_path"), *card_bases(front)])
    record = _replace(
        member.record,
        base_raw=claims[0] if claims else None,
        task=text_or_none((config or {}).get("task_type")) or member.record.task,
    )
    return _replace(member, record=record, adapter_config=config, claims=claims)


def _claims(values: Iterable[object]) -> tuple[str, ...]:
    texts = filter(None, map(text_or_none, values))
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _is_weight(name: str, *, adapter: bool) -> bool:
    if adapter:
        return name in _ADAPTER_WEIGHTS
    return name.endswith((".safetensors", ".bin")) and not name.startswith(("adapter", "training"))


def _read_card(folder: Path) -> tuple[dict[str, Any], str]:
    try:
        start = read_start(folder / "README.md", 4 * MAX_CARD_CHARS)
    except ModelError:
        return {}, ""
    return split_card(start.decode("utf-8", "replace"))


def _run_of(id: str) -> str:
    """Checkpoints below one folder are one training run: the id without its step."""
    return _STEP_FOLDER.sub("", id) or id
