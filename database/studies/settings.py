"""What decides a study's numbers, as it is stored beside them; loaded when a study is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """What decides a rank study's numbers; stored with them."""

    thetas: list[float]
    subject: Literal["weights", "update"]
    version: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrumSettings:
    """The same of a spectrum study."""

    subjects: list[Literal["weights", "update"]]
    draws: int
    seed: int = 0
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSettings:
    """The same of a study over texts, which are named by a digest."""

    texts: str
    max_tokens: int
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentsSettings(TextSettings):
    against: str | None
    special_tokens: bool
    heads: bool
    linear: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationSettings(TextSettings):
    senses: str | None
    tags: str | None
    tasks: list[str]
    runs: int
    most_items: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometrySettings(TextSettings):
    reference: str | None
    method: Literal["gram", "lanczos", "power"]
    untrained: bool
    scrambled: bool
    keep_tokens: int
    seed: int
    version: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CkaSettings(TextSettings):
    against: str
    keep_tokens: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitLensSettings(TextSettings):
    against: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersSettings(TextSettings):
    transfer: str | None
    untrained: bool
    embedding: bool
    punctuation: bool
    context_texts: str | None
    sweep_context: list[int]
    sweep_texts: list[int]
    also: list[str]
    keep_tokens: int
    most_texts: int
    seed: int
    version: int = 2
