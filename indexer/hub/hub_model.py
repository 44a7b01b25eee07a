"""One repository as the Hub describes it, and whether that alone rules it out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeGuard
from urllib.parse import quote

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from ...errors import ModelError
from ..checkpoint import ADAPTER_WEIGHTS, ModelFolder, choose_weights, quantization
from ..untrusted_text import distinct_texts, text_or_none
from .session import (
    HubSession,
    cached_commit,
    cached_file,
    cached_files,
    default_session,
    request_json,
)

Kind = Literal["full", "adapter", "quantized", "other"]
RELATIONS = ("finetune", "adapter", "merge", "quantized")
ADAPTER_FILES = ("adapter_config.json", *ADAPTER_WEIGHTS)
MAX_COUNT = (1 << 63) - 1
WEIGHT_ENDINGS = (".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json")

_CORE = (
    "sha",
    "tags",
    "cardData",
    "gated",
    "private",
    "siblings",
    "config",
    "pipeline_tag",
    "downloads",
    "createdAt",
)

CHILD_COUNTS = "childrenModelCount"

EXPAND_SETS: tuple[tuple[str, ...], ...] = (
    (*_CORE, "disabled", "safetensors", "model-index", CHILD_COUNTS),
    (*_CORE, "disabled", "safetensors", "model-index"),
    _CORE,
    (),
)
"""What is requested of each listed model; the next set where a Hub refuses one with 400."""

FULL_FIELDS = ("full", "cardData", "config")
"""The question without `expand`, as older servers know it."""

_TAG = re.compile(
    r"gptq|awq|[2348]-bit|bitsandbytes|(mx|nv)?fp[48]|compressed-tensors|exl[23]|hqq|aqlm|eetq"
    r"|quanto|auto-round"
)

_PACKED_DTYPES = ("I32", "U8", "I8", "U32", "F4")

_PACKED_SHARE = 0.25
"""The least share of the stored elements. GPT-2's boolean masks are below a tenth, packed 4-bit
weights of small models with large embeddings about a third."""


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
        private: Whether only its owners see it.
        card_data: The card's front matter as the Hub parsed it.
        model_index: Evaluation results, raw; incomplete ones too.
        config: Extract of config.json: architectures, model_type, quantization_config.
        dtypes: Parameters a dtype, from the safetensors headers.
        n_children: Models that name it as their base, as the Hub counts them; None where the Hub
            did not say.
    """

    id: str
    sha: str = ""
    kind: Kind = "full"
    files: tuple[str, ...] | None = None
    base_models: tuple[str, ...] = ()
    relation: str | None = None
    gated: str = ""
    private: bool = False
    disabled: bool = False
    tags: tuple[str, ...] = ()
    card_data: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    model_index: object = field(default=None, compare=False, repr=False)
    config: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    pipeline_tag: str | None = None
    downloads: int | None = None
    created_at: str | None = None
    license: str | None = None
    dtypes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    n_children: int | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, raw: Mapping[str, object]) -> HubModel:
        """The model that an API answer describes; what is not as expected is left out."""
        card, tags = _mapping(raw.get("cardData")), _texts(raw.get("tags"))
        siblings = raw.get("siblings")
        files = None
        if isinstance(siblings, list):
            names = [s.get("rfilename") if isinstance(s, Mapping) else s for s in siblings]
            files = tuple(sorted(name for name in names if isinstance(name, str)))
        relation = _relation(tags, card)
        gated = raw.get("gated")
        licenses = [tag[8:] for tag in tags if tag.startswith("license:")] or [""]
        dtypes = _mapping(_mapping(raw.get("safetensors")).get("parameters"))
        return cls(
            id=str(raw["id"]),
            sha=text_or_none(raw.get("sha")) or "",
            kind=_kind(files, relation),
            files=files,
            base_models=_base_models(tags, card),
            relation=relation,
            gated=gated if isinstance(gated, str) else "manual" if gated is True else "",
            private=raw.get("private") is True,
            disabled=raw.get("disabled") is True,
            tags=tags,
            card_data=card,
            model_index=raw.get("model-index") or card.get("model-index"),
            config=_mapping(raw.get("config")),
            pipeline_tag=text_or_none(raw.get("pipeline_tag")),
            downloads=_count(raw.get("downloads")),
            created_at=_moment(raw.get("createdAt")),
            license=licenses[0] or text_or_none(card.get("license")),
            dtypes={dtype: n for dtype, n in dtypes.items() if isinstance(n, int) and n > 0},
            n_children=_child_count(raw.get(CHILD_COUNTS)),
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


def _relation(tags: tuple[str, ...], card: Mapping[str, object]) -> str | None:
    for relation in RELATIONS:
        if any(tag.startswith(f"base_model:{relation}:") for tag in tags):
            return relation
    declared = card.get("base_model_relation")
    return declared if declared in RELATIONS else None


def _base_models(tags: tuple[str, ...], card: Mapping[str, object]) -> tuple[str, ...]:
    tagged = [tag.removeprefix("base_model:") for tag in tags if tag.startswith("base_model:")]
    direct = [name for name in tagged if name.split(":", 1)[0] not in RELATIONS]
    claims = card.get("base_model")
    return distinct_texts([*direct, *(claims if isinstance(claims, list) else [claims])])


def _mapping(value: object) -> dict[str, object]:
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}


def _texts(values: object) -> tuple[str, ...]:
    texts = map(text_or_none, values) if isinstance(values, (list, tuple)) else ()
    return tuple(text for text in texts if text is not None)


def _count(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if fits else None  # type: ignore[return-value]


def _child_count(value: object) -> int | None:
    """The sum of the counts by relation; None unless every one is a count."""
    counts = list(map(_count, value.values() if isinstance(value, Mapping) else [value]))
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _moment(value: object) -> str | None:
    """A date and time that every calendar knows, as ISO 8601 has it."""
    try:
        return datetime.fromisoformat(str(value)).isoformat()
    except ValueError:
        return None


def describe(
    repo_id: str, revision: str | None = None, *, session: HubSession | None = None
) -> HubModel:
    """The repository of that id, under its current name, pinned to a commit.

    Offline it is what the local cache holds of it.
    """
    session = session or default_session()
    if not is_repo_id(repo_id):
        raise ModelError("not-found", f"'{repo_id}' is neither a folder nor a Hub id")
    if session.offline:
        return _from_cache(repo_id, revision, session)
    path = f"/revision/{quote(revision, safe='')}" if revision else ""
    url = f"{session.endpoint}/api/models/{repo_id}{path}"
    answer, _ = request_json(session, session.call(repo_id), url)
    if not isinstance(answer, dict) or not is_repo_id(answer.get("id")):
        raise ModelError("hub-bad-answer", f"{repo_id}: not a model's description")
    return HubModel.from_json(answer)


def is_repo_id(value: object) -> TypeGuard[str]:
    """Whether a value is an id that a repository can have."""
    if not isinstance(value, str):
        return False
    try:
        validate_repo_id(value)
    except HFValidationError:
        return False
    return True


def _from_cache(repo_id: str, revision: str | None, session: HubSession) -> HubModel:
    commit = cached_commit(session.cache_dir, repo_id, revision or "main")
    if commit is None:
        raise ModelError("offline", f"{repo_id}: offline mode, and not in the local cache")
    files = cached_files(session.cache_dir, repo_id, commit)
    config = cached_file(session.cache_dir, repo_id, commit, "config.json")
    settings = ModelFolder.at(config.parent).json(config.name) if config else None
    raw = {"id": repo_id, "sha": commit, "siblings": files, "config": settings}
    return HubModel.from_json(raw)


def early_refusal(model: HubModel, *, session: HubSession | None = None) -> ModelError | None:
    """Why a model will not be read, from its description alone; None where it is to be tried.

    A gated model is tried where there is a token: access may have been granted.
    """
    session = session or default_session()
    if model.disabled:
        return ModelError("disabled", f"{model.id}: the Hub has disabled the repository")
    if model.gated and not session.has_token:
        line = "gated; ask for access on its page and set HF_TOKEN"
        return ModelError("gated", f"{model.id}: {line}")
    scheme = _quantised_as(model)
    if scheme is not None:
        return ModelError("quantized", f"{model.id}: weights are stored as {scheme}")
    is_adapter = model.kind == "adapter"
    if model.files is not None and choose_weights(model.files, adapter=is_adapter) is None:
        return ModelError("no-weights", f"{model.id}: no safetensors or .bin weights at its top")
    return None


def _quantised_as(model: HubModel) -> str | None:
    if model.kind == "adapter":
        return None
    scheme = quantization(model.config, (), model.files or ())
    if scheme is not None:
        return scheme
    if model.kind == "quantized":
        return "a quantised copy of its base"
    total = sum(model.dtypes.values())
    packed = {n: c for n, c in model.dtypes.items() if n in _PACKED_DTYPES or n.startswith("F8_")}
    if packed and sum(packed.values()) >= _PACKED_SHARE * total:
        return max(packed, key=packed.__getitem__)
    tag = next((tag for tag in model.tags if _TAG.fullmatch(tag.lower())), None)
    return tag if tag is not None and (packed or not total) else None
