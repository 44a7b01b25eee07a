"""What the Hub says of one repository, as far as any of it can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ..words import text_or_none

Kind = Literal["full", "adapter", "quantized", "other"]
RELATIONS = ("finetune", "adapter", "merge", "quantized")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin")
MAX_COUNT = (1 << 63) - 1
WEIGHT_ENDINGS = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """One repository at one commit, before any of its files is read.

    Attributes:
        sha: The commit that everything is read from; "" where it is not known.
        kind: What its files look like.
        files: Names from the repository's top; None where the Hub did not say.
        base_models: Ids that its tags and card name as its base, tags first.
        relation: How it descends from them: one of `RELATIONS`, or None.
        gated: "auto", "manual", or "" where it is open.
        card_data: The card's front matter as the Hub parsed it.
        model_index: Evaluation results, raw; incomplete ones are kept.
        config: Extract of config.json: architectures, model_type, quantization_config.
        dtypes: Parameters a dtype, from the safetensors headers.
    """

    id: str
    sha: str = ""
    kind: Kind = "full"
    files: tuple[str, ...] | None = None
    base_models: tuple[str, ...] = ()
    relation: str | None = None
    gated: str = ""
    disabled: bool = False
    private: bool = False
    tags: tuple[str, ...] = ()
    card_data: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    model_index: object = field(default=None, compare=False, repr=False)
    config: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    library_name: str | None = None
    pipeline_tag: str | None = None
    downloads: int | None = None
    likes: int | None = None
    created_at: str | None = None
    license: str | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> HubModel:
        """The model that an API answer describes; what is not as expected is left out."""
        card, tags = _mapping(raw.get("cardData")), _texts(raw.get("tags"))
        files = _file_names(raw.get("siblings"))
        relation = _relation(tags, card)
        gated = raw.get("gated")
        return cls(
            id=str(raw["id"]),
            sha=text_or_none(raw.get("sha")) or "",
            kind=_kind(files, relation),
            files=files,
            base_models=_base_models(tags, card),
            relation=relation,
            gated=gated if isinstance(gated, str) else "manual" if gated is True else "",
            disabled=raw.get("disabled") is True,
            private=raw.get("private") is True,
            tags=tags,
            card_data=card,
            model_index=raw.get("model-index") or card.get("model-index"),
            config=_mapping(raw.get("config")),
            library_name=text_or_none(raw.get("library_name")),
            pipeline_tag=text_or_none(raw.get("pipeline_tag")),
            downloads=_count(raw.get("downloads")),
            likes=_count(raw.get("likes")),
            created_at=_moment(raw.get("createdAt")),
            license=_license(tags, card),
            dtypes=_dtypes(raw.get("safetensors")),
        )


def _kind(files: tuple[str, ...] | None, relation: str | None) -> Kind:
    """What the files at the top say; the declared relation where they are not known."""
    if files is None:
        return {"adapter": "adapter", "quantized": "quantized"}.get(relation or "", "full")  # type: ignore[return-value]
    top = [name for name in files if "/" not in name]
    if any(name in ADAPTER_FILES for name in top):
        return "adapter"
    if relation == "quantized":
        return "quantized"
    if any(name.endswith(WEIGHT_ENDINGS) for name in top):
        return "full"
    return "quantized" if any(name.endswith(".gguf") for name in files) else "other"


def _relation(tags: tuple[str, ...], card: Mapping[str, Any]) -> str | None:
    for relation in RELATIONS:
        if any(tag.startswith(f"base_model:{relation}:") for tag in tags):
            return relation
    declared = card.get("base_model_relation")
    return declared if declared in RELATIONS else None


def _base_models(tags: tuple[str, ...], card: Mapping[str, Any]) -> tuple[str, ...]:
    tagged = [tag.removeprefix("base_model:") for tag in tags if tag.startswith("base_model:")]
    direct = [name for name in tagged if name.split(":", 1)[0] not in RELATIONS]
    claims = card.get("base_model")
    claimed = _texts(claims if isinstance(claims, list) else [claims])
    return tuple(dict.fromkeys(name.strip() for name in (*direct, *claimed) if name.strip()))


def _license(tags: tuple[str, ...], card: Mapping[str, Any]) -> str | None:
    tagged = next(
        (tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), None
    )
    return tagged or text_or_none(card.get("license"))


def _file_names(siblings: object) -> tuple[str, ...] | None:
    if not isinstance(siblings, list):
        return None
    names = [s.get("rfilename") if isinstance(s, Mapping) else s for s in siblings]
    return tuple(sorted(name for name in names if isinstance(name, str)))


def _dtypes(safetensors: object) -> dict[str, int]:
    parameters = _mapping(_mapping(safetensors).get("parameters"))
    return {name: n for name, n in parameters.items() if isinstance(n, int) and n > 0}


def _mapping(value: object) -> dict[str, Any]:
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}


def _texts(values: object) -> tuple[str, ...]:
    found = map(text_or_none, values) if isinstance(values, (list, tuple)) else ()
    return tuple(text for text in found if text is not None)


def _count(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if fits else None  # type: ignore[return-value]


def _moment(value: object) -> str | None:
    """A date and time that every calendar knows, as ISO 8601 has it."""
    try:
        return datetime.fromisoformat(str(value)).isoformat()
    except ValueError:
        return None
