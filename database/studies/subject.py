"""The model that a study is about: an indexed one, a folder or a Hub id; where its base is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import (
    BaseError,
    EmptyCatalog,
    ModelError,
    RequestError,
    UnknownBase,
    UnknownModel,
)
from ..queries import is_model_path

if TYPE_CHECKING:
    from ...store import Catalog, ModelRow
    from ...study.network import LanguageHead, Network
    from ...study.network.causal_model import CausalModel

UPLOADED = "upload"
"""Source of a model that a service was sent."""

STRANGERS = frozenset(
    {"other-base", "base-unknown", "wrong-base", "shape-mismatch", "layer-mismatch"}
)
"""Codes of models that were refused as no members of the family that their row is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model.

    Attributes:
        name: Its id in the catalog, or as the user calls it.
        source: A folder or Hub id to read it from; None where its files are kept nowhere.
        base: A folder, Hub id or mere name; None where nothing names one.
        is_adapter: Whether it has no weights of its own.
        key: Of the catalog; None for a model that is not in it.
        note: What an adapter's files say against `base`, where the user chose it.
    """

    name: str
    source: str | None
    base: str | None
    is_adapter: bool
    key: int | None = None
    note: str = ""

    @property
    def base_notes(self) -> dict[str, list[str]]:
        """What a document says of the base."""
        return {"base_notes": [self.note] if self.note else []}

    def require_source(self) -> str:
        """Where its files are.

        Raises:
            RequestError: a service was sent them, and kept none.
        """
        if self.source is None:
            raise RequestError(
                f"{self.name}: was sent to a service, which keeps no files; "
                "name the adapter's folder instead"
            )
        return self.source

    def require_base(self) -> str:
        """The base.

        Raises:
            RequestError: none is known.
        """
        if self.base is None:
            raise RequestError(f"{self.name}: which base is it a fine-tune of? Add --base")
        return self.base

    def load(self, device: str) -> Network:
        """The model, ready to run."""
        from ...study.network import load_network

        source = self.require_source()
        return load_network(source, name=self.name, base=self._base_place, device=device)

    def load_causal(self, device: str) -> CausalModel:
        """The model with its language-model head, ready to run."""
        from ...study.network.causal_model import load_causal

        source = self.require_source()
        return load_causal(source, name=self.name, base=self._base_place, device=device)

    def load_head(self, network: Network) -> LanguageHead:
        """The head with which the model predicts tokens, around its network.

        Raises:
            StudyError: its checkpoint ships none.
        """
        from ...study.network import load_head

        return load_head(self.require_source(), network, base=self._base_place)

    @property
    def _base_place(self) -> str | None:
        """Where the base's weights may be: a folder, or an id with an owner or of old style."""
        is_place = self.base and (Path(self.base).is_dir() or not self.base.startswith(("/", ".")))
        return self.base if is_place else None

    def load_base(self, device: str) -> Network:
        """Its base, ready to run."""
        from ...study.network import load_network

        return load_network(self.require_base(), device=device)

    def require_descent(self, network: Network, base: Network) -> None:
        """Refuse a full checkpoint whose layers, now loaded, owe the base nothing.

        Raises:
            RequestError: `wrong-base`, as it is refused by `index`.
        """
        from ...indexer import require_descent
        from ...study.network import paired_matrices

        if self.is_adapter:
            return
        try:
            require_descent(paired_matrices(network, base), base.name)
        except ModelError as err:
            raise RequestError(f"{self.name}: {err}") from err


def find_subject(
    catalog: Catalog, model: str, base: str | None, *, hint: str | None = None
) -> Subject:
    """The model that a user names.

    Args:
        base: Its base, as the user spells it; counts more than what an adapter's files name.
        hint: What may be its base, for a model that is in no family.

    Raises:
        RequestError: neither indexed, nor a folder or Hub id; or no such base; or an adapter of
            a base that is no family of the catalog.
    """
    known = catalog.bases()
    hinted = None if base or hint is None else _hinted_family(catalog, hint)
    spelled = hint if hinted in known else base
    family = _family(catalog, spelled)
    if known and not is_model_path(model):
        family = catalog.find_base(family)
    source = model
    try:
        row = catalog.model(model, family)
        if row.code not in STRANGERS:
            return stored_subject(row, spelled)
        source = _source_of(row) or model
    except (UnknownModel, UnknownBase, EmptyCatalog):
        if not is_model_path(model):
            raise
        if not Path(model).is_dir() and model.startswith(("/", ".", "~")):
            raise RequestError(f"{model}: no such folder") from None
    from ...indexer import choose_base

    may_be_base = hinted is not None and (hinted in known or is_model_path(hinted))
    chosen = choose_base(catalog, source, base, hint if may_be_base else None)
    return Subject(
        name=model,
        source=source,
        base=chosen.base,
        is_adapter=chosen.is_adapter,
        note=chosen.note,
    )


def _hinted_family(catalog: Catalog, hint: str) -> str | None:
    """The name of what may be a base; None for a folder of anything else, such as an adapter."""
    try:
        return _family(catalog, hint)
    except BaseError:
        return None


def _source_of(row: ModelRow) -> str | None:
    known = row.record.source
    return {"": row.id, "hub": row.id, UPLOADED: None}.get(known, known)


def stored_subject(row: ModelRow, base: str | None = None) -> Subject:
    """A model of the catalog; `base` says where its base is, if the family's name does not."""
    return Subject(
        name=row.id,
        source=_source_of(row),
        base=base if base and Path(base).expanduser().is_dir() else row.base,
        is_adapter=row.record.kind == "adapter",
        key=row.key,
    )


def family_subjects(catalog: Catalog, base: str) -> list[Subject]:
    """Every indexed model of a family.

    Raises:
        RequestError: there is none.
    """
    rows = catalog.models(base=_family(catalog, base), where="status = 'indexed'")
    if not rows:
        raise RequestError(f"{base}: no indexed model; `deltadex index {base} FOLDER` first")
    return [stored_subject(row, base) for row in rows]


def _family(catalog: Catalog, base: str | None) -> str | None:
    """The name in the catalog of a base that the user spells."""
    from ...indexer import resolve_base

    return resolve_base(catalog, base).name if base else None
