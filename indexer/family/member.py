"""A candidate of a family before any weight is read: which base it names, whether it is wanted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from ...errors import ModelError, RequestError
from ...records import ModelRecord
from ..checkpoint import (
    WHOLE_TENSORS,
    Checkpoint,
    Config,
    ModelFolder,
    ReadPlan,
    choose_weights,
    model_type,
    open_adapter_weights,
    open_local,
    read_json,
)
from ..hub import HubModel, HubSession, HubWeights, read_small_file, stated_bytes
from ..untrusted_text import base_key, distinct_texts, shown
from .paths import resolved

_TUNED_SUFFIX = re.compile(r"(it|instruct|chat)$")
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")

CLAIMS_SHOWN = 8


def same_base(claim: str, base: str) -> bool:
    """Whether a model that says `claim` belongs to the family of `base`.

    Besides equal names: the instruction-tuned release of a base is its descendant, so its
    adapters belong to the base's family; and a path on somebody's disk is a loose hint, so
    it may leave that suffix out. A Hub id without the suffix is another model.
    """
    claimed, wanted = base_key(claim), base_key(base)
    if not claimed or claimed == wanted:
        return claimed == wanted != ""
    if _TUNED_SUFFIX.sub("", claimed) == wanted:
        return True
    is_path = not _HUB_ID.match(claim) or claim.startswith((".", "/"))
    return is_path and claimed == _TUNED_SUFFIX.sub("", wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Where a model's files are, and what its small files say.

    Attributes:
        given: The folder that the user named, out of which no link leads; None for the model's own.
        config: `config.json`, of an adapter `adapter_config.json`, as far as it is known.
        claims: Every name under which the model's files mention a base, most trusted first.
        refusal: A reason that needs no weights to be known.
        is_merge: Whether it names several parents.
    """

    record: ModelRecord
    folder: Path | None = None
    given: Path | None = None
    hub: HubModel | None = None
    config: Config | None = field(default=None, compare=False)
    claims: tuple[str, ...] = ()
    refusal: ModelError | None = None
    is_merge: bool = False

    @property
    def is_adapter(self) -> bool:
        return self.record.kind == "adapter"

    @property
    def stated_bytes(self) -> int:
        """Bytes of its weight files, as far as its listing or its files tell; else 0."""
        return self.record.bytes_total if self.hub is None else stated_bytes(self.hub) or 0

    @property
    def files(self) -> ModelFolder | None:
        """The model's files on disk; None for the Hub."""
        return None if self.folder is None else ModelFolder.at(self.folder, self.given)

    def checkpoint(
        self, plan: ReadPlan = WHOLE_TENSORS, session: HubSession | None = None
    ) -> Checkpoint:
        """The weight files, headers read, or a `ModelError`."""
        if self.hub is not None:
            return HubWeights(self.hub, plan, session=session).open()
        assert self.folder is not None
        if self.is_adapter:
            return open_adapter_weights(self.folder, given=self.given)
        return open_local(self.folder, given=self.given, whole=plan.whole)

    def with_config(self, session: HubSession | None = None) -> Member:
        """The member with its config, and the base that it names where the Hub's description has
        none; a Hub model's is fetched only when it is to be read."""
        model = self.hub
        name = "adapter_config.json" if self.is_adapter else "config.json"
        if model is None or (model.files is not None and name not in model.files):
            return self
        try:
            config = read_json(read_small_file(model, name, session=session), name=name)
        except ModelError as err:
            if err.code == "not-found":
                return self
            raise
        claims = self.claims
        if self.is_adapter and not claims:
            claims = distinct_texts([config.get("base_model_name_or_path")])
        return replace(self, config=config, claims=claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The base as members may refer to it.

    Attributes:
        folder: Its own folder, if it is local.
    """

    names: tuple[str, ...]
    folder: Path | None = None
    config: Config | None = None

    def named_in(self, claims: Iterable[str]) -> bool:
        """Whether any of a model's claims means this base."""
        return any(self._means(claim) for claim in claims)

    def _means(self, claim: str) -> bool:
        if self.folder is not None and resolved(claim) == self.folder:
            return True
        return any(same_base(claim, name) for name in self.names)


def refuse_strangers(member: Member, wanted: Wanted) -> Member:
    """The member, refused if its small files alone show that it belongs elsewhere.

    A full checkpoint's claims are loose (it may name an intermediate fine-tune), so its
    weights decide; an adapter's weights cannot show its base, so its claim decides.
    """
    if member.refusal is not None and member.refusal.code != "quantized":
        return member
    if member.claims and not wanted.named_in(member.claims) and member.is_adapter:
        return replace(member, refusal=ModelError("other-base", _named(member.claims)))
    own, base = (model_type(c) for c in (member.config, wanted.config))
    if member.is_adapter or own is None or base is None or own == base:
        return member
    types = f"its architecture is {shown(own)}, the base's is {shown(base)}"
    return replace(member, refusal=ModelError("other-base", f"{_named(member.claims)}; {types}"))


def _named(claims: Sequence[str]) -> str:
    if not claims:
        return "names no base"
    return f"names base {' and '.join(map(shown, claims[:CLAIMS_SHOWN]))}"


Exclusion = Literal["adapters", "bin", "full", "gguf", "merges", "quantized"]
EXCLUSIONS: tuple[Exclusion, ...] = get_args(Exclusion)

Kind = Literal["full", "merge", "adapter", "quantized", "other"]
Format = Literal["safetensors", "bin", "gguf", "none", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which members are wanted.

    Attributes:
        depth: Generations below the base on the Hub; None for all.
        min_downloads: Least downloads; a model whose downloads are not known is kept.
    """

    depth: int | None = None
    exclude: tuple[str, ...] = ()
    min_downloads: int | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.exclude if name not in EXCLUSIONS]
        if unknown:
            known = ", ".join(EXCLUSIONS)
            raise RequestError(f"exclude {unknown[0]!r}: expected one of {known}")
        for name, value in (("depth", self.depth), ("min_downloads", self.min_downloads)):
            if value is not None and value < 1:
                raise RequestError(f"{name} {value}: expected 1 or more")

    def require_hub(self, *, is_hub: bool) -> None:
        """Refuse what only the Hub knows, where the members are not there.

        Raises:
            RequestError: a generation or downloads are asked for.
        """
        if is_hub:
            return
        if self.depth is not None or self.min_downloads is not None:
            raise RequestError("--depth and --min-downloads need --hub: files do not tell them")

    def chosen(self, members: Iterable[Member]) -> Iterator[Member]:
        """The members that are wanted, in their order."""
        return (member for member in members if self.keeps(member))

    def keeps(self, member: Member) -> bool:
        """Whether a member is wanted."""
        downloads = member.record.downloads
        if downloads is not None and downloads < (self.min_downloads or 0):
            return False
        kind, form = kind_of(member), format_of(member)
        properties: dict[str, bool] = {
            "adapters": kind == "adapter",
            "bin": form == "bin",
            "full": kind in ("full", "merge"),
            "gguf": form == "gguf",
            "merges": kind == "merge",
            "quantized": kind == "quantized",
        }
        return not any(properties[name] for name in self.exclude)


EVERY_MEMBER = Selection()


def kind_of(member: Member) -> Kind:
    """What a member is, as far as its listing or its small files tell."""
    if member.refusal is not None and member.refusal.code == "quantized":
        return "quantized"
    if member.is_adapter:
        return "adapter"
    if member.hub is not None and member.hub.kind in ("quantized", "other"):
        return "quantized" if member.hub.kind == "quantized" else "other"
    return "merge" if member.is_merge else "full"


def format_of(member: Member) -> Format:
    """How a member's weights are stored, by the names of its files."""
    names = file_names(member)
    if names is None:
        return "unknown"
    chosen = choose_weights(names, adapter=member.is_adapter)
    if chosen is not None:
        return "bin" if chosen.endswith((".bin", ".bin.index.json")) else "safetensors"
    return "gguf" if any(name.endswith(".gguf") for name in names) else "none"


def file_names(member: Member) -> Collection[str] | None:
    """The names of a member's files; None where they are not known."""
    if member.hub is not None:
        return member.hub.files
    try:
        return None if member.files is None else member.files.names()
    except ModelError:
        return None
