"""A folder of several families: which of its models belong to which base."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from ..errors import BaseError, ModelError
from ..store import Catalog
from .base import resolve_base, wanted_base
from .checkpoint import Config
from .family import HUB_ID, folder_at, folder_members, is_model_folder, read_labels, same_base
from .untrusted_text import base_key

SIZES = (
    ("model_type",),
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "num_layers"),
)
"""What configs of a base and of its full fine-tunes have in common, by any of these names."""


def is_several(base: str | Path) -> bool:
    """Whether what is named as a base is a folder of models, and no model: one whose files are
    links that lead out of it is none."""
    folder = folder_at(base)
    if folder is None or not is_model_folder(folder):
        return folder is not None
    refusal = next(folder_members(folder, "", leave_out=None)).refusal  # of the folder itself
    return refusal is not None and refusal.code == "outside-folder"


def families_below(
    catalog: Catalog, folder: Path, labels: Path | None = None
) -> tuple[dict[str, set[str]], dict[str, ModelError]]:
    """The ids of a folder's models by base, the largest family first, and why others are of none: a
    model belongs to the base that it names; a full one that names none to the only base whose
    config has its architecture and sizes. A `SourceError` if a file of labels names none of
    them."""
    everything = list(folder_members(folder, "", leave_out=None))
    members = [member for member in everything if member.folder is not None]
    left_out = {m.record.id: m.refusal for m in everything if m.folder is None and m.refusal}
    if labels is not None and members:
        read_labels(labels).match(members)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for claim in (member.claims[0] for member in members if member.claims):
        spellings[_key(claim)][claim] += 1
    names = {key: _name(catalog, some) for key, some in spellings.items() if key}
    for key, name in names.items():  # an instruction-tuned release is of the base's family
        if folder_at(name) is None:
            others = (other for other in names if other != key and same_base(name, names[other]))
            names[key] = names[next(others, key)]
    folders = {place.resolve() for name in names.values() if (place := folder_at(name))}
    sizes = _sizes_of_bases(catalog, [*names.values(), *catalog.bases()])
    ids: dict[str, set[str]] = defaultdict(set)
    for member in members:
        if member.folder in folders:
            continue  # a base itself
        if member.claims and (base := names.get(_key(member.claims[0]))):
            ids[base].add(member.record.id)
            continue
        fitting = [base for base, theirs in sizes.items() if theirs == _sizes(member.config)]
        if member.is_adapter or len(fitting) != 1:
            bases = ", ".join(fitting) or "no known base"
            said = f"names no base, and its config fits {bases}"
            left_out[member.record.id] = member.refusal or ModelError("base-unknown", said)
        else:
            ids[fitting[0]].add(member.record.id)
    return dict(sorted(ids.items(), key=lambda family: (-len(family[1]), family[0]))), left_out


def _key(claim: str) -> str:
    """What is equal for spellings of one base."""
    folder = folder_at(claim)
    return base_key(claim) if folder is None else str(folder.resolve())


def _name(catalog: Catalog, spellings: Counter[str]) -> str:
    """A base as the catalog has it, else a folder, else a Hub id, else the last part of a path."""
    ranked = [claim for claim, _ in spellings.most_common()]
    known = [base for base in catalog.bases() if _key(base) == _key(ranked[0])]
    there = [claim for claim in ranked if folder_at(claim) is not None]
    on_hub = [claim for claim in ranked if HUB_ID.match(claim)]
    return (*known, *there, *on_hub, re.split(r"[/\\]", ranked[0].rstrip("/\\"))[-1])[0]


def _sizes_of_bases(catalog: Catalog, names: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """Of every base whose config can be read."""
    sizes = {}
    for name in dict.fromkeys(names):
        try:
            config = wanted_base(resolve_base(catalog, name)).config
        except BaseError:
            continue
        if config is not None:
            sizes[name] = _sizes(config)
    return sizes


def _sizes(config: Config | None) -> tuple[object, ...]:
    settings = config or {}
    return tuple(next((settings[k] for k in names if k in settings), None) for names in SIZES)
