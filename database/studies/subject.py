"""The model that a study is about: an indexed one, a folder or a Hub id; where its base is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import EmptyCatalog, RequestError, UnknownBase, UnknownModel
from ..queries import is_model_path

if TYPE_CHECKING:
    from ...store import Catalog, ModelRow
    from ...study.network import LanguageHead, Network
    from ...study.network.causal_model import CausalModel

UPLOADED = "upload"
"""Source of a model that a service was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One model.

    Attributes:
        name: Its id in the catalog, or as the user calls it.
        source: A folder or Hub id to read it from; None where its files are kept nowhere.
        base: A folder, Hub id or mere name; None where nothing names one.
        key: Of the catalog; None for a model that is not in it.
    """

    name: str
    source: str | None
    base: str | None
    key: int | None = None

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


def find_subject(
    catalog: Catalog, model: str, base: str | None, *, hint: str | None = None
) -> Subject:
    """The model that a user names.

    Args:
        base: Its base, as the user spells it.
        hint: What may be its base, for a model that is in no family.

    Raises:
        RequestError: neither indexed, nor a folder or Hub id; or no such base.
    """
    known = catalog.bases()
    if base is None and hint is not None and _family(catalog, hint) in known:
        base = hint
    family = _family(catalog, base)
    if known and not is_model_path(model):
        family = catalog.find_base(family)
    try:
        return stored_subject(catalog.model(model, family), base)
    except (UnknownModel, UnknownBase, EmptyCatalog):
        if not is_model_path(model):
            raise
        if not Path(model).is_dir() and model.startswith(("/", ".", "~")):
            raise RequestError(f"{model}: no such folder") from None
    from ...indexer import claimed_base, guess_base

    base = base or hint or (guess_base(catalog, model) if known else claimed_base(model))
    return Subject(name=model, source=model, base=base)


def stored_subject(row: ModelRow, base: str | None = None) -> Subject:
    """A model of the catalog; `base` says where its base is, if the family's name does not."""
    known = row.record.source
    source = {"": row.id, "hub": row.id, UPLOADED: None}.get(known, known)
    place = base if base and Path(base).expanduser().is_dir() else row.base
    return Subject(name=row.id, source=source, base=place, key=row.key)


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
