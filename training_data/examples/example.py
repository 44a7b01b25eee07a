"""One example of a data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example, as a model was or could be trained on it.

    Attributes:
        text: What the model reads; the prompt where there is a completion.
        completion: The part whose tokens count in a causal or sequence-to-sequence loss; "" where
            all of `text` does.
        pair: The second text of a pair task: a hypothesis, a context.
        label: The name of a class, or a number of a regression.
    """

    text: str
    completion: str = ""
    pair: str = ""
    label: str | float | None = None
