"""Which members of a family are wanted: by generation, kind of files and downloads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import ModelError, RequestError
from ...records import Exclusion
from ..checkpoint import choose_weights
from .member import Member

EXCLUSIONS: tuple[Exclusion, ...] = get_args(Exclusion)

Kind = Literal["full", "merge", "adapter", "quantized", "other"]
Format = Literal["safetensors", "bin", "gguf", "none", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which members are wanted.

    Attributes:
        depth: Generations below the base on the Hub; None for all.
        exclude: Kinds and formats that are not wanted.
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
    chosen = choose_weights([n for n in names if "/" not in n], adapter=member.is_adapter)
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
