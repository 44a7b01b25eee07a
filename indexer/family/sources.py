"""Where members come from: a folder, a list, the Hub, one id or path."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...errors import ModelError, SourceError
from ...records import GATED_NOTE, PRIVATE_NOTE, ModelRecord
from ..checkpoint import ADAPTER_WEIGHTS, ModelFolder, quantization
from ..hub import (
    HubModel,
    HubSession,
    describe,
    early_refusal,
    read_small_file,
)
from ..untrusted_text import distinct_texts, shown, text_or_none
from .card import MAX_CARD_CHARS, card_bases, label_of, parents_note, split_card
from .member import Member
from .paths import FolderWalk, folder_at, read_text_file, resolved, storable

log = logging.getLogger(__name__)

CARD = "README.md"

_LEADS_OUT = "a link leads out of the folder; index the folder that holds both, or a list of paths"

_STEP_FOLDER = re.compile(r"/?(checkpoint[-_][^/]*|(step|epoch)[-_]?\d+)$", re.IGNORECASE)


def folder_members(folder: Path, base: str, *, leave_out: Path | None) -> Iterator[Member]:
    """Every model below `folder`, but for the base's; ids are paths relative to it. What is left
    out is logged."""
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    root = folder.resolve()
    walk = FolderWalk(root)
    for found in walk:
        id = found.name.as_posix() if found.name.parts else root.name
        if found.place is None:
            record = ModelRecord(id=storable(id), base=base, source=storable(str(root / id)))
            yield Member(record=record, refusal=ModelError("outside-folder", _LEADS_OUT))
        elif found.place != leave_out:
            yield read_member(found.place, id=id, base=base, given=root)
    if walk.left_out:
        log.warning("%s: left out: %s", folder, walk.left_out)


def listed_members(list_file: Path, base: str) -> Iterator[Member]:
    """The models of a file with one id or path a line; `#` begins a comment.

    Paths are relative to the file's own folder, or to the current one.
    """
    for line in read_text_file(list_file, "a list of models").splitlines():
        text = line.split("#", 1)[0].strip()
        if text:
            beside = folder_at(list_file.parent / text)
            yield find_member(str(beside or text), base, id=text)


def find_member(model: str, base: str, *, id: str | None = None) -> Member:
    """The model at a path, or of that id on the Hub."""
    path = folder_at(model)
    if path is not None:
        return read_member(path.resolve(), id=id or _path_id(model), base=base)
    model = storable(model)
    if model.startswith((".", "/", "~")):
        refusal = ModelError("not-found", f"{shown(model)}: no such folder")
        return Member(record=ModelRecord(id=id or _path_id(model), base=base), refusal=refusal)
    try:
        described = describe(model)
    except ModelError as err:
        return Member(record=ModelRecord(id=model, base=base, source="hub"), refusal=err)
    return member_of(described, base, claims=described.base_models)


def _path_id(path: str) -> str:
    """A path below the current folder as it is from there; any other by its last name."""
    place, here = resolved(path) or Path(path), Path.cwd().resolve()
    return place.relative_to(here).as_posix() if here in place.parents else place.name


def read_member(folder: Path, *, id: str, base: str, given: Path | None = None) -> Member:
    """The model in a folder by its small files; bad ones make it a refused member.

    Args:
        folder: Its absolute path, without links.
        given: The folder that no link may leave; None for the model's own.
    """
    id = storable(id)
    run = _STEP_FOLDER.sub("", id) or id  # checkpoints below a folder are one training run
    record = ModelRecord(id=id, base=base, source=storable(str(folder)), run=run)
    try:
        return _describe(Member(record=record, folder=folder, given=given))
    except ModelError as err:
        return Member(record=record, folder=folder, given=given, refusal=err)


def _describe(member: Member) -> Member:
    """A member of which the place is known, with all that its small files say."""
    files, record = member.files, member.record
    assert files is not None
    names = sorted(files.names())
    adapter = "adapter_config.json" in names or any(n in ADAPTER_WEIGHTS for n in names)
    front, text = _read_card(files) if CARD in names else ({}, "")
    label = label_of(name=record.id, card=front, text=text)
    weights = [name for name in names if _is_weight(name, adapter=adapter)]
    record = replace(
        record,
        signature=files.signature(),
        kind="adapter" if adapter else "full",
        method="lora" if adapter else "full",
        dataset=label.dataset,
        dataset_raw=label.raw,
        label_source=label.source,
        license=text_or_none(front.get("license")),
        task=text_or_none(front.get("pipeline_tag")),
        bytes_total=sum(map(files.size, weights)),
        notes=parents_note(card_bases(front)),
    )
    member = replace(member, is_merge=bool(record.notes))
    config_name = "adapter_config.json" if adapter else "config.json"
    try:
        config = files.json(config_name) if config_name in names else None
    except ModelError as err:
        return replace(member, record=record, refusal=err)
    settings, scheme = config or {}, None
    if adapter:
        claims = distinct_texts([settings.get("base_model_name_or_path"), *card_bases(front)])
        record = replace(record, task=text_or_none(settings.get("task_type")) or record.task)
    else:
        claims = distinct_texts([*card_bases(front), settings.get("_name_or_path")])
        scheme = quantization(config, (), names)
    return replace(
        member,
        record=replace(record, base_raw=claims[0] if claims else None),
        config=config,
        claims=claims,
        refusal=ModelError("quantized", f"weights are stored as {scheme}") if scheme else None,
    )


def _is_weight(name: str, *, adapter: bool) -> bool:
    if adapter:
        return name in ADAPTER_WEIGHTS
    return name.endswith((".safetensors", ".bin")) and not name.startswith(("adapter", "training"))


def _read_card(files: ModelFolder) -> tuple[dict[str, object], str]:
    """(front matter, body); both empty where it is no file, as a card is no part of a model."""
    try:
        start = files.start(CARD, 4 * MAX_CARD_CHARS)
    except ModelError as err:
        if err.code == "outside-folder":
            raise
        return {}, ""
    return split_card(start.decode("utf-8", "replace"))


def member_of(model: HubModel, base: str, *, claims: tuple[str, ...]) -> Member:
    """A Hub model as a member, its labels read from what the Hub said of it."""
    card = {**model.card_data, "model-index": model.model_index}
    label = label_of(name=model.id, tags=model.tags, card=card)
    adapter = model.kind == "adapter"
    notes = [*parents_note(model.base_models)]
    notes += [GATED_NOTE] if model.gated else []
    notes += [PRIVATE_NOTE] if model.private else []
    record = ModelRecord(
        id=model.id,
        base=base,
        base_raw=model.base_models[0] if model.base_models else None,
        revision=model.sha or None,
        signature=model.sha,
        kind="adapter" if adapter else "full",
        method="lora" if adapter else "full",
        source="hub",
        author=model.id.split("/")[0] if "/" in model.id else None,
        run=model.id,
        dataset=label.dataset,
        dataset_raw=label.raw,
        label_source=label.source,
        task=model.pipeline_tag,
        license=model.license,
        downloads=model.downloads,
        created_at=model.created_at,
        notes=tuple(notes),
    )
    return Member(
        record=record,
        hub=model,
        claims=claims,
        refusal=early_refusal(model),
        is_merge=model.relation == "merge" or bool(parents_note(model.base_models)),
    )


MAX_CARD_BYTES = 4 * MAX_CARD_CHARS

LONGEST_CALL_S = 20.0
"""A label is not worth the time that weights are."""


def needs_card(member: Member) -> bool:
    """Whether a model's card can say more of its dataset than its listing did.

    Tags, front matter and evaluation results come before the text of a card, a model's name after.
    """
    model = member.hub
    return (
        model is not None
        and member.refusal is None
        and member.record.label_source in (None, "name")
        and (model.files is None or CARD in model.files)
    )


def with_card_label(member: Member, session: HubSession) -> Member:
    """The member with the label of its card's text, where it needs one and that names data.

    A card that cannot be fetched leaves the member as it is.
    """
    if member.hub is None or not needs_card(member):
        return member
    patience = replace(
        session.patience, call_s=min(session.patience.call_s, LONGEST_CALL_S), tries=2
    )
    try:
        content = read_small_file(
            member.hub, CARD, session=session, max_bytes=MAX_CARD_BYTES, patience=patience
        )
        _, text = split_card(content.decode("utf-8", "replace"))
        label = label_of(name=member.record.id, text=text)
    except ModelError as err:
        log.info("%s: its card is not read: %s", member.record.id, err)
        return member
    # A card's text must not cost its model, whatever is wrong with it.
    except Exception:
        log.debug("%s: defect while reading its card", member.record.id, exc_info=True)
        return member
    if label.source != "sentence":
        return member
    record = replace(
        member.record,
        dataset=label.dataset,
        dataset_raw=label.raw,
        label_source=label.source,
    )
    return replace(member, record=record)
