"""Conversations as lists of messages: the last answer is the completion of what comes before."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

Message = Mapping[str, str]
Template = Callable[[list[dict[str, str]]], tuple[str, str]]
"""Messages to (prompt, completion) through a chat template; `ValueError` where it refuses them."""

ROLES = {
    "human": "user",
    "prompter": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
}


def are_messages(value: object) -> bool:
    """Whether a value is a list of messages, or the JSON of one."""
    return read_messages(value) is not None


def read_messages(value: object) -> tuple[Message, ...] | None:
    """The messages with `role` and `content`; None where the value is something else."""
    if isinstance(value, str):
        if not value.lstrip().startswith("[{"):
            return None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or not value:
        return None
    messages = []
    for entry in value:
        role = entry.get("role", entry.get("from")) if isinstance(entry, dict) else None
        if not isinstance(role, str):
            return None
        content = _content(entry.get("content", entry.get("value")))
        messages.append({"role": ROLES.get(role.lower(), role.lower()), "content": content})
    return tuple(messages)


def until_last_answer(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages up to the last one of the assistant; () if it never answers."""
    places = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "assistant" and message["content"].strip()
    ]
    return tuple(messages[: places[-1] + 1]) if places else ()


def plain_template(messages: Sequence[Message]) -> tuple[str, str]:
    """(prompt, completion) without a chat template: `role: content`, a message in each line."""
    *before, answer = messages
    lines = [f"{message['role']}: {message['content']}\n" for message in before]
    return "".join(lines) + f"{answer['role']}:", f" {answer['content']}"


def _content(value: object) -> str:
    """The text of a message, whose content may also be a list of parts."""
    if isinstance(value, list):
        parts = [part.get("text") for part in value if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return value if isinstance(value, str) else ""
