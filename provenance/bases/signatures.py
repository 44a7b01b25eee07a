"""The signature of a base: what it is recognised by in the weights of other models.

A run of every layer matrix, what `invariants` keeps of it, and its config's facts: at most 2 MiB.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ... import indexer
from ...arrays import Float32
from ...errors import BaseError, DeltadexError, ModelError, RequestError
from ...store import RUN_WIDTH, Catalog, StoredSignature, Track
from .base_invariants import BaseInvariants, make_invariants
from .opened_model import OpenedModel, open_model

log = logging.getLogger(__name__)

VERSION = 2
"""Of the form of a signature; another one is made anew."""


@dataclass(frozen=True, eq=False)
class KnownBase:
    """A base that the catalog knows, by its signature; `models`: of its family, in the catalog;
    `reason`: why it has no signature, where it has none."""

    base: str
    stored: StoredSignature | None
    models: int = 0
    reason: str = ""

    @property
    def registered(self) -> bool:
        return self.stored is not None and self.stored.registered

    @cached_property
    def invariants(self) -> BaseInvariants | None:
        """What no change of basis alters; None where nothing is kept of it."""
        try:
            stored = self.stored.invariants if self.stored else b""
            return BaseInvariants.from_bytes(stored) if stored else None
        except ValueError as err:
            log.warning("base %s: %s; `deltadex bases add` reads it again", self.base, err)
            return None

    @cached_property
    def facts(self) -> dict[str, str | int]:
        facts: dict[str, str | int] = json.loads(self.stored.facts) if self.stored else {}
        return facts

    @cached_property
    def samples(self) -> tuple[indexer.MatrixSample, ...]:
        samples, start = [], 0
        assert self.stored is not None
        for tensor, group, layer, shape, dtype, entries in json.loads(self.stored.matrices):
            stop = start + entries * RUN_WIDTH[dtype]
            values = _decoded(self.stored.runs[start:stop], dtype)
            start = stop
            own = {"tensor": tensor, "group": group, "layer": layer, "dtype": dtype}
            samples.append(indexer.MatrixSample(**own, shape=tuple(shape), values=values))
        return tuple(samples)

    def to_json(self) -> dict[str, object]:
        stored, facts = self.stored, self.facts
        parts = (stored.runs, stored.invariants, stored.matrices, stored.facts) if stored else ()
        return {
            "base": self.base,
            "state": "known" if stored else "not read",
            "registered": self.registered,
            "models": self.models,
            "type": facts.get("model_type"),
            "layers": facts.get("layers"),
            "width": facts.get("width"),
            "vocabulary": facts.get("vocabulary"),
            "bytes": sum(map(len, parts)) if stored else None,
            "reason": self.reason,
        }


def _encoded(values: Float32[np.ndarray, " entries"], dtype: str) -> bytes:
    """As they were stored, exactly; float64 as float32."""
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype("<f2" if dtype == "F16" else "<f4").tobytes()


def _decoded(content: bytes, dtype: str) -> Float32[np.ndarray, " entries"]:
    if dtype == "BF16":
        wide = np.frombuffer(content, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32)
    return np.frombuffer(content, "<f2" if dtype == "F16" else "<f4").astype(np.float32)


def _invariants(model: OpenedModel, *, registered: bool) -> bytes:
    """What tells the base in another basis; empty where its matrices are not placed, and of a
    remote base unless it is registered: up to a hundredth of it is read, row by row."""
    if model.rows is None or not (registered or model.checkpoint.concurrent):
        return b""
    try:
        return make_invariants(model.rows).to_bytes()
    except ModelError as err:
        log.debug("%s: %s", model.member.record.id, err)
        return b""


def known_bases(catalog: Catalog, track: Track, *, offline: bool = False) -> list[KnownBase]:
    """Every base of a family, and every registered one, by name. Signatures that are missing are
    made of the base's folder, its cached or remote weights, and stored where the catalog can be
    written; `offline`: of files on this machine only."""
    stored = {s.base: s for s in catalog.signatures.all() if s.version == VERSION}
    counts = catalog.signatures.models()
    known, unreachable = [], "only files on this machine are read" if offline else ""
    for name in track(sorted({*stored, *catalog.bases()}), "reading bases"):
        signature, reason = stored.get(name), ""
        if signature is None:
            try:
                if unreachable and not Path(name).is_absolute():
                    raise ModelError("hub-unreachable", unreachable)
                signature = _signature_of(catalog, name, registered=False)
            except DeltadexError as err:
                reason = str(err)
                if isinstance(err, ModelError) and err.code == "hub-unreachable":
                    unreachable = err.reason.removeprefix(f"{name}: ")  # others would wait as long
        known.append(KnownBase(name, signature, counts.get(name, 0), reason))
    return known


def register(catalog: Catalog, spelling: str) -> KnownBase:
    """Add a base that needs no family: a folder, or a Hub id; a `RequestError` where it cannot be
    read."""
    try:
        base = indexer.resolve_base(catalog, spelling)
        signature = _signature_of(catalog, base.name, registered=True, spelling=spelling)
    except (ModelError, BaseError) as err:
        line = str(err)
        raise RequestError(line if spelling in line else f"{spelling}: {line}") from err
    return KnownBase(base.name, signature)


def _signature_of(
    catalog: Catalog, name: str, *, registered: bool, spelling: str | None = None
) -> StoredSignature:
    """The signature of a base under a name, which is stored where the catalog can be written."""
    with open_model(spelling or name) as model:
        samples = model.samples
        if not samples:
            raise ModelError("no-attention", "has no layer matrix that can be sampled")
        signature = StoredSignature(
            base=name,
            version=VERSION,
            registered=registered,
            source=model.source,
            revision=model.member.record.revision,
            facts=json.dumps(model.facts, sort_keys=True),
            matrices=json.dumps(
                [[s.tensor, s.group, s.layer, s.shape, s.dtype, len(s.values)] for s in samples]
            ),
            runs=b"".join(_encoded(s.values, s.dtype) for s in samples),
            invariants=_invariants(model, registered=registered),
        )
    if not catalog.read_only:
        catalog.signatures.save(signature)
    return signature


def closest(candidates: Sequence[KnownBase]) -> list[KnownBase]:
    """In the order in which one of several equal bases is chosen: the one of most models, a family
    before one that was only registered, then by name."""
    return sorted(candidates, key=lambda b: (-b.models, b.registered, b.base))
