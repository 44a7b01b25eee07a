"""The label in the text of a Hub model's card, fetched where nothing else names a dataset."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...errors import ModelError
from ..hub import HubSession, read_small_file
from .card import MAX_CARD_CHARS, label_of, split_card
from .member import Member

log = logging.getLogger(__name__)

CARD = "README.md"

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
