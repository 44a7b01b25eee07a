"""Conversations as prompt and completion, by the chat template of a base's tokenizer."""

from __future__ import annotations

from typing import Any

from .examples.messages import Template


def chat_template(tokenizer: Any) -> Template | None:
    """Messages to (prompt, completion) as the tokenizer writes them; None without a template."""
    if not getattr(tokenizer, "chat_template", None):
        return None

    def apply(messages: list[dict[str, str]]) -> tuple[str, str]:
        """Raises `ValueError` for conversations that the template refuses."""
        from jinja2 import TemplateError

        try:
            before = tokenizer.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
            whole = tokenizer.apply_chat_template(messages, tokenize=False)
        except TemplateError as err:
            raise ValueError(f"the chat template refuses it: {err}") from err
        if not whole.startswith(before):
            return before, messages[-1]["content"]
        return before, whole[len(before) :]

    return apply
