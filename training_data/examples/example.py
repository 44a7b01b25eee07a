"""One example of a data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a model is trained on at once.

    Attributes:
        text: What the model reads; the prompt, where there is a completion.
        completion: The part whose tokens count in a causal or seq2seq loss; empty counts all of
            the text.
        pair: The second text of a task on pairs: premise and hypothesis, question and context.
        label: The name of a class, or a number of a regression.
    """

    text: str
    completion: str = ""
    pair: str = ""
    label: str | float | None = None
