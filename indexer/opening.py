"""A member's files, wherever they are: weights opened, configs read."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ModelError
from .checkpoint import (
    WHOLE_TENSORS,
    Checkpoint,
    ReadPlan,
    open_adapter_weights,
    open_local,
    read_json,
)
from .family import Member
from .hub import HubModel, HubWeights, read_small_file


def open_checkpoint(member: Member, plan: ReadPlan = WHOLE_TENSORS) -> Checkpoint:
    """The member's weight files, headers read.

    Raises:
        ModelError: they cannot be opened.
    """
    if member.hub is not None:
        return HubWeights(member.hub, plan).open()
    assert member.folder is not None
    return open_adapter_weights(member.folder) if member.is_adapter else open_local(member.folder)


def with_config(member: Member) -> Member:
    """The member with its config; a Hub model's is fetched only when it is to be read.

    Raises:
        ModelError: the config is there and cannot be read.
    """
    if member.hub is None:
        return member
    if member.is_adapter:
        return replace(member, adapter_config=_config(member.hub, "adapter_config.json"))
    return replace(member, config=_config(member.hub, "config.json"))


def _config(model: HubModel, name: str) -> dict[str, object] | None:
    if model.files is not None and name not in model.files:
        return None
    try:
        return read_json(read_small_file(model, name), name=name)
    except ModelError as err:
        if err.code == "not-found":
            return None
        raise
