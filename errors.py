"""Every error that deltadex raises about files, the Hub, catalogs and requests, as one tree.

A wrong *call* from Python raises `ValueError` or `TypeError` as usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["failed", "skipped", "no-update"]


@dataclass(frozen=True, slots=True)
class Reason:
    """What a reason code means.

    Attributes:
        status: Status that a model of this code has in the catalog.
        transient: Time may cure it, or another token; every run tries again.
        by_nature: No repair of files or access gives this model a fingerprint in this family.
        withdrawn: There are no files to read: a model that was indexed before stays indexed.
        by_rights: Who asks decides: of a whole family on the Hub, such a model is no failure.
    """

    meaning: str
    status: Status = "failed"
    transient: bool = False
    by_nature: bool = False
    withdrawn: bool = False
    by_rights: bool = False

    @property
    def is_failure(self) -> bool:
        """Whether something that should have worked did not."""
        return self.status == "failed" and not self.by_nature


REASONS: dict[str, Reason] = {
    # files
    "truncated": Reason("a weight file ends before its tensors do"),
    "bad-header": Reason("a weight file's header cannot be read"),
    "bad-offsets": Reason("tensors overlap or lie outside their file"),
    "duplicate-tensor": Reason("duplicate tensor name"),
    "non-finite": Reason("a wanted tensor holds NaN or infinity, or overflows"),
    "missing-shard": Reason("the index names a shard that is not there"),
    "missing-tensor": Reason("a wanted tensor is not where it should be"),
    "unsupported-dtype": Reason("a wanted tensor is stored in a type not read"),
    "legacy-pickle": Reason("a .bin file in torch's old form, never unpickled"),
    "unsafe-pickle": Reason("a .bin file that holds more than tensors"),
    "unreadable": Reason("the system refuses to read a file", transient=True),
    "outside-folder": Reason("a link leads out of the given folder", withdrawn=True),
    "bad-config": Reason("config.json or adapter_config.json is not usable"),
    "no-weights": Reason("no weight file that deltadex reads", withdrawn=True),
    "not-found": Reason("no such folder or repository", withdrawn=True),
    "changed": Reason("the files changed while they were read", transient=True),
    "checksum-mismatch": Reason(
        "a weight file's bytes are not those that are listed for it", transient=True
    ),
    # architecture
    "no-attention": Reason("the model has no matrix in numbered blocks", by_nature=True),
    "unknown-architecture": Reason("layer matrices that cannot be placed"),
    "not-read": Reason("layer matrices are stored in a form that is not read"),
    "shape-mismatch": Reason("layer matrices differ in shape from the base's", by_nature=True),
    "layer-mismatch": Reason("layers are missing or added against the base", by_nature=True),
    # update
    "wrong-base": Reason("the weights are not a fine-tune of this base", by_nature=True),
    "no-update": Reason("no layer matrix differs from the base's beyond rounding", "no-update"),
    # adapters
    "unsupported-adapter": Reason("an adapter method whose ΔW is not computed", by_nature=True),
    "unknown-targets": Reason("the adapter's modules do not exist in the base"),
    "no-layer-update": Reason("the adapter touches no layer matrix", by_nature=True),
    "needs-base": Reason("the base's weights are needed and cannot be reached", transient=True),
    "ambiguous-weights": Reason("several GGUF files have one form"),
    # family
    "other-base": Reason("the model names another base", "skipped"),
    "base-unknown": Reason("the model names no base and fits none", "skipped"),
    "quantized": Reason("quantised weights: ΔW would measure rounding", "skipped"),
    "id-taken": Reason("another model of this family has the same id"),
    # Hub
    "gated": Reason(
        "the repository is gated and access is not granted",
        transient=True,
        withdrawn=True,
        by_rights=True,
    ),
    "private-or-missing": Reason(
        "the Hub shows no such repository to you", transient=True, withdrawn=True, by_rights=True
    ),
    "disabled": Reason("the Hub has disabled the repository", by_nature=True, withdrawn=True),
    "unauthorized": Reason("the Hub refuses the token", transient=True, withdrawn=True),
    "rate-limited": Reason("rate-limited by the Hub", transient=True),
    "hub-unreachable": Reason("the Hub does not answer", transient=True),
    "hub-bad-answer": Reason("the Hub's answer is not what was asked for", transient=True),
    "offline": Reason("offline mode, and the files are not cached", transient=True),
    # anything else
    "internal": Reason("a defect in deltadex; please report it", transient=True),
}

NOWHERE = frozenset({"not-found", "private-or-missing"})
"""Codes of what is not there, as far as the one who asks may see."""


class DeltadexError(Exception):
    """Anything a user can be told in one line."""


class ModelError(DeltadexError):
    """One model cannot be fingerprinted.

    Attributes:
        code: A key of `REASONS`.
        reason: One line: what, where, expected, got, next step.
    """

    def __init__(self, code: str, reason: str) -> None:
        if code not in REASONS:
            raise ValueError(f"unknown reason code {code!r}")
        super().__init__(code, reason)
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


class BaseError(DeltadexError):
    """The base itself cannot be used, so no model can."""


class SourceError(DeltadexError):
    """A folder, list, label file or Hub listing cannot be read."""


class DataError(DeltadexError):
    """A data set cannot be read, or has no usable examples."""


class StudyError(DeltadexError):
    """A study cannot be made of this model or these texts."""


class StoreError(DeltadexError):
    """The catalog or its index."""


class StoreLocked(StoreError):
    """Another process holds the database file."""


class StoreDamaged(StoreError):
    """The file is not a readable DuckDB database."""


class ForeignDatabase(StoreError):
    """A DuckDB database, but not a deltadex catalog."""


class OtherSchema(StoreError):
    """The catalog was written by another version of deltadex."""


class StoreFull(StoreError):
    """No space left, or the folder refuses writes."""


class BadIndex(StoreError):
    """A published index is not there, is damaged, or is not what its manifest says."""


class RecipeMismatch(StoreError):
    """Vectors of different recipes or sizes would meet in one index."""


class EngineError(StoreError):
    """The engine that holds exported vectors cannot be reached, or does not hold them whole."""


class RequestError(DeltadexError):
    """The request cannot be answered; the message says what would work."""


class UnknownModel(RequestError):
    """No such model in the catalog."""


class UnknownBase(RequestError):
    """No family of that base in the catalog."""


class UnknownRecipe(RequestError):
    """No such recipe, or no model fingerprinted under it."""


class EmptyCatalog(RequestError):
    """The catalog holds nothing to search."""


class OtherBase(RequestError):
    """The files of a base hold another model than its family was indexed from."""


class BadFilter(RequestError):
    """A `--where` with an unknown column or operator, or a label that no model has."""


class BadQuery(RequestError):
    """A statement for `deltadex sql` that is no single SELECT of the catalog's tables."""


class ServiceError(DeltadexError):
    """A service cannot be reached, refuses the token, has a defect, or is no deltadex."""


class NotServed(RequestError):
    """A question that a service does not answer, or not with these options."""


CODES: dict[str, type[DeltadexError]] = {
    "unknown-model": UnknownModel,
    "unknown-base": UnknownBase,
    "unknown-recipe": UnknownRecipe,
    "empty-catalog": EmptyCatalog,
    "other-base": OtherBase,
    "bad-filter": BadFilter,
    "bad-query": BadQuery,
    "bad-request": RequestError,
    "bad-data": DataError,
    "bad-study": StudyError,
    "bad-source": SourceError,
    "bad-base": BaseError,
    "engine": EngineError,
    "store": StoreError,
    "refused": DeltadexError,
}
"""Errors by the codes that a service answers with, beside `REASONS`; a class that is not here has
the code of the class that it is of."""


def code_of(error: DeltadexError) -> str:
    """The code of an error, for programs."""
    if isinstance(error, ModelError):
        return error.code
    codes = {kind: code for code, kind in CODES.items()}
    return next(codes[kind] for kind in type(error).__mro__ if kind in codes)


OFFERED, LISTED = 3, 30
"""Names that a message has: the nearest ones, or all of a few."""

COMPARED = 10_000
"""Names whose spelling is compared with a wrong one; to compare this many takes half a second."""

FEWEST_LETTERS = 3
"""Letters that a part of a name needs to say something."""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that a wrong one may stand for: those that begin with it or hold it, then those
    that are spelled alike, as wholes or by the parts after the last `/`."""
    from difflib import get_close_matches
    from itertools import islice

    spellings: dict[str, str] = {}
    for right in known:
        for spelling in (right.lower(), right.lower().rsplit("/", 1)[-1]):
            spellings.setdefault(spelling, right)
    wanted = name.lower().strip("/ ")
    compared = list(islice(spellings, COMPARED))
    last = wanted.rsplit("/", 1)[-1]
    parts = [wanted, last] if len(last) >= FEWEST_LETTERS else [wanted]
    matches = [
        *(s for part in parts if part for s in spellings if s.startswith(part)),
        *(s for part in parts if len(part) >= FEWEST_LETTERS for s in spellings if part in s),
        *(s for part in parts for s in get_close_matches(part, compared, OFFERED)),
    ]
    return list(dict.fromkeys(spellings[spelling] for spelling in matches))[:OFFERED]


def offered(name: str, known: Iterable[str], listed: str | None = "there are") -> str:
    """The end of a message about an unknown name: the nearest known ones, else `listed` and all."""
    names = list(dict.fromkeys(known))
    if near := nearest_names(name, names):
        return f"; near: {', '.join(near)}"
    if listed is None or not names:
        return ""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"; {listed}: {', '.join(names[:LISTED])}{more}"
