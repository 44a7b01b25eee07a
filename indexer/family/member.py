"""One candidate of a family, before any weight is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ...records import ModelRecord
from ..hub import HubModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Where a model's files are, and what its small files say.

    Attributes:
        folder: The model's folder; None for the Hub.
        hub: The Hub's description; None for a local model.
        config: `config.json` of a full checkpoint, as far as it is known.
        adapter_config: `adapter_config.json`; None where it is missing.
        claims: Every name under which the model's files mention a base, most trusted first.
        refusal: A reason that needs no weights to be known.
    """

    record: ModelRecord
    folder: Path | None = None
    hub: HubModel | None = None
    config: Mapping[str, Any] | None = field(default=None, compare=False)
    adapter_config: Mapping[str, Any] | None = field(default=None, compare=False)
    claims: tuple[str, ...] = ()
    refusal: ModelError | None = None

    @property
    def is_adapter(self) -> bool:
        return self.record.kind == "adapter"
