"""A member's weight files, wherever they are."""

from __future__ import annotations

from .checkpoint import Checkpoint, open_adapter_weights, open_local
from .family import Member
from .hub import open_hub_adapter, open_hub_model


def open_checkpoint(member: Member) -> Checkpoint:
    """The member's weight files, headers read.

    Raises:
        ModelError: they cannot be opened.
    """
    if member.hub is not None:
        return open_hub_adapter(member.hub) if member.is_adapter else open_hub_model(member.hub)
    assert member.folder is not None
    return open_adapter_weights(member.folder) if member.is_adapter else open_local(member.folder)
