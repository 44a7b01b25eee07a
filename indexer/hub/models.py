"""Repositories as the Hub describes them, and a base's whole family of them."""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable
from urllib.parse import quote, urlencode

import httpx2
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from ...errors import ModelError, SourceError
from ...results import agree
from ..checkpoint import (
    EIGHT_BITS,
    USUAL_WEIGHTS,
    ModelFolder,
    choose_weights,
    foreign_lora,
    is_adapter,
    is_foreign_lora,
    quantization,
)
from ..untrusted_text import distinct_texts, text_or_none
from .session import HubSession, cached_snapshot, default_session, request_json

log = logging.getLogger(__name__)

Kind = Literal["full", "adapter", "quantized", "other"]
RELATIONS = ("finetune", "adapter", "merge", "quantized")
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

EXPANDED: tuple[dict[str, str | tuple[str, ...]], ...] = (
    {"expand": (*_CORE, "disabled", "safetensors", "model-index", CHILD_COUNTS)},
    {"expand": (*_CORE, "disabled", "safetensors", "model-index")},
    {"expand": _CORE},
    {"full": "true", "cardData": "true", "config": "true"},
)
"""What is requested of each listed model; the next set where a Hub refuses one with 400. Older
servers know the last."""

SKIPPED = frozenset({"onnx", "openvino", "__pycache__", "node_modules"})
"""Folders of weights that are not PyTorch's."""

PIPELINE = "model_index.json"
"""The file of a diffusion pipeline, whose folders are its parts."""

MAX_FOLDERS = 256
"""Models of one repository."""

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
        folder: Where in the repository the model is; "" at its top.
        sha: The commit that everything is read from; "" where it is not known.
        files: Names from the folder on; None where the Hub did not say.
        base_models: Ids that its tags and card name as its base, tags first.
        gated: "auto", "manual", or "" where it is open.
        card_data: The card's front matter as the Hub parsed it.
        model_index: Evaluation results, raw; incomplete ones too.
        dtypes: Parameters a dtype, from the safetensors headers.
    """

    id: str
    folder: str = ""
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
        card, tags = _mapping(raw.get("cardData")), _texts(raw.get("tags"))
        siblings = raw.get("siblings")
        files = None
        if isinstance(siblings, list):
            names = [s.get("rfilename") if isinstance(s, Mapping) else s for s in siblings]
            files = tuple(sorted(name for name in names if isinstance(name, str)))
        relation = _relation(tags, card)
        gated = raw.get("gated")
        licenses = [tag[8:] for tag in tags if tag.startswith("license:")] or [""]
        stated = _mapping(_mapping(raw.get("safetensors")).get("parameters"))
        dtypes = {dtype: n for dtype, n in stated.items() if isinstance(n, int) and n > 0}
        return cls(
            id=str(raw["id"]),
            sha=text_or_none(raw.get("sha")) or "",
            kind=_kind(files, relation, dtypes),
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
            dtypes=dtypes,
            n_children=_child_count(raw.get(CHILD_COUNTS)),
        )

    @property
    def name(self) -> str:
        """The repository's id, of a model in a folder of it `owner/repository:folder`."""
        return f"{self.id}:{self.folder}" if self.folder else self.id

    def path(self, file: str) -> str:
        return f"{self.folder}/{file}" if self.folder else file

    def at(self, folder: str) -> HubModel:
        """The model in a folder of the repository, of which the listing tells the files alone."""
        start = f"{folder}/"
        files = tuple(f.removeprefix(start) for f in self.files or () if f.startswith(start))
        kind = _kind(files, self.relation if is_adapter(files) else None, {})
        return replace(self, folder=folder, files=files, kind=kind, config={}, dtypes={})

    def models(self) -> Iterator[HubModel]:
        """The model at the top, where there is one, and those in folders: every adapter; full
        checkpoints where the top has none and is no pipeline of several."""
        found = [self.at(folder) for folder in self._folders()]
        if choose_weights(self.files or (), adapter=self.kind == "adapter") is not None:
            found = [model for model in found if model.kind == "adapter"]
            yield self
        elif not found:
            yield self
        yield from found

    def _folders(self) -> list[str]:
        by_folder: dict[str, list[str]] = {}
        for path in self.files or ():
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        if PIPELINE in by_folder.get("", ()):
            return []
        folders = (
            folder
            for folder, names in by_folder.items()
            if folder
            and not any(part.startswith(".") or part in SKIPPED for part in folder.split("/"))
            and choose_weights(names, adapter=is_adapter(names)) in USUAL_WEIGHTS
        )
        return sorted(folders)[:MAX_FOLDERS]


def _kind(files: tuple[str, ...] | None, relation: str | None, dtypes: Mapping[str, int]) -> Kind:
    """What the files at the top say, and the types in them; the declared relation where they are
    not known: the Hub calls a model quantised for a `.gguf` beside its weights."""
    if files is None:
        return {"adapter": "adapter", "quantized": "quantized"}.get(relation or "", "full")  # type: ignore[return-value]
    top = [name for name in files if "/" not in name]
    if is_adapter(top):
        return "adapter"
    if any(name.endswith(WEIGHT_ENDINGS) and not is_foreign_lora(name) for name in top):
        return "quantized" if relation == "quantized" and _packed_type(dtypes) else "full"
    if any(map(is_foreign_lora, top)):
        return "adapter"
    is_quantised = relation == "quantized" or any(name.endswith(".gguf") for name in files)
    return "quantized" if is_quantised else "other"


def _packed_type(dtypes: Mapping[str, int]) -> str | None:
    """The commonest type of quantised values, where they are a good part of the weights."""
    packed = {n: c for n, c in dtypes.items() if n in _PACKED_DTYPES or n.startswith("F8_")}
    if not packed or sum(packed.values()) < _PACKED_SHARE * sum(dtypes.values()):
        return None
    return max(packed, key=packed.__getitem__)


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
    counts = list(map(_count, value.values() if isinstance(value, Mapping) else [value]))
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _moment(value: object) -> str | None:
    try:
        return datetime.fromisoformat(str(value)).isoformat()
    except ValueError:
        return None


def describe(
    repo_id: str, revision: str | None = None, *, session: HubSession | None = None
) -> HubModel:
    """The repository of that id under its current name, pinned to a commit; offline, what the local
    cache holds."""
    session = session or default_session()
    repository, _, folder = repo_id.partition(":")
    if folder and "/" in repository and not folder.startswith("/"):
        return describe(repository, revision, session=session).at(folder)
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
    if not isinstance(value, str):
        return False
    try:
        validate_repo_id(value)
    except HFValidationError:
        return False
    return True


def _from_cache(repo_id: str, revision: str | None, session: HubSession) -> HubModel:
    folder = cached_snapshot(session.cache_dir, repo_id, revision or "main")
    if folder is None:
        raise ModelError("offline", f"{repo_id}: offline mode, and not in the local cache")
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files, config = sorted(names), folder / "config.json"
    settings = ModelFolder.at(folder).json(config.name) if config.exists() else None
    raw = {"id": repo_id, "sha": folder.name, "siblings": files, "config": settings}
    return HubModel.from_json(raw)


def early_refusal(model: HubModel, *, session: HubSession | None = None) -> ModelError | None:
    """Why a model will not be read, from its description alone. A gated one is tried where there is
    a token."""
    session = session or default_session()
    if model.disabled:
        return ModelError("disabled", f"{model.id}: the Hub has disabled the repository")
    if model.gated and not session.has_token:
        line = "gated; ask for access on its page and set HF_TOKEN"
        return ModelError("gated", f"{model.id}: {line}")
    if (scheme := _quantised_as(model)) is not None:
        return ModelError("quantized", f"{model.id}: weights are stored as {scheme}")
    is_adapter = model.kind == "adapter"
    if model.files is not None and choose_weights(model.files, adapter=is_adapter) is None:
        if foreign := next(filter(is_foreign_lora, model.files), None):
            return foreign_lora(f"{model.id}: {foreign}")
        where = f"in {model.folder}" if model.folder else "at its top"
        return ModelError("no-weights", f"{model.id}: no safetensors or .bin weights {where}")
    return None


def _quantised_as(model: HubModel) -> str | None:
    if model.kind == "adapter":
        return None
    if (scheme := quantization(model.config, (), model.files or ())) is not None:
        return scheme
    packed = _packed_type(model.dtypes)
    chosen = choose_weights(model.files or (), adapter=False)
    if packed in EIGHT_BITS or (chosen or "").endswith(".gguf"):
        return None  # scales beside them decide, or the file's own types
    if model.kind == "quantized":
        return "a quantised copy of its base"
    if model.dtypes or chosen is not None:
        return packed
    return next((tag for tag in model.tags if _TAG.fullmatch(tag.lower())), None)


MAX_BARREN = 3
"""Pages in a row without a model that was not on an earlier one."""

RENAMED = "renamed"
"""In the place of an entry: the name under which the Hub listed a parent's children."""


@runtime_checkable
class ListingMemory(Protocol):
    """Storage for the finished listings of an unfinished walk."""

    def load(self, parent: str) -> list[dict[str, Any]] | None: ...
    def save(self, parent: str, models: list[dict[str, Any]]) -> None: ...


def request_children(parent: str, session: HubSession) -> Iterator[dict[str, Any]]:
    """A parent's children as plain values, fewer properties where the Hub refuses some;
    `{"renamed": name}` before them where the Hub answers for another name."""
    what, answered, level = f"children of {parent}", parent, session.expand_level
    url = _question(parent, session, level)
    known: set[str] = set()
    n_entries = n_barren = 0
    while url:
        call = session.call(what, passes=frozenset({400}))
        page, response = request_json(session, call, url)
        if response.status_code == 400:
            level += 1
            if level == len(EXPANDED):
                raise ModelError("hub-bad-answer", f"{what}: the Hub refuses the question (400)")
            session.expand_level = level
            url = _question(parent, session, level)
            known.clear()
            answered, n_entries, n_barren = parent, 0, 0
            continue
        if not isinstance(page, list):
            raise ModelError("hub-bad-answer", f"{what}: not a list of models")
        name = _listed_name(response.url)
        if name is not None and name.lower() != answered.lower():
            answered = name
            yield {RENAMED: name}
        models = [e for e in page if isinstance(e, dict) and is_repo_id(e.get("id"))]
        fresh = {e["id"]: e for e in models if e["id"] not in known}
        known |= fresh.keys()
        n_entries += len(page)
        n_barren = 0 if fresh else n_barren + 1
        if n_barren > MAX_BARREN:
            raise ModelError("hub-bad-answer", f"{what}: its pages repeat themselves")
        yield from fresh.values()
        url = _next_page(response, what)
    if n_entries and not known:
        raise ModelError("hub-bad-answer", f"{what}: not a list of models")


def _question(parent: str, session: HubSession, level: int) -> str:
    question = {"filter": f"base_model:{parent}", "sort": "createdAt"} | EXPANDED[level]
    return f"{session.endpoint}/api/models?{urlencode(question, doseq=True)}"


def _next_page(response: httpx2.Response, what: str) -> str:
    onward = response.links.get("next", {}).get("url")
    try:
        return str(response.url.join(onward)) if onward else ""
    except httpx2.InvalidURL:
        raise ModelError("hub-bad-answer", f"{what}: the next page has no address") from None


def _listed_name(url: httpx2.URL) -> str | None:
    filters = url.params.get_list("filter")
    names = [tag.removeprefix("base_model:") for tag in filters if tag.startswith("base_model:")]
    return names[0] if names and is_repo_id(names[0]) else None


CURRENT = "current"
"""In the memory, in the place of an entry: the id of the model that a name leads to."""

MAX_UNANSWERED = 3
"""Parents in a row whose children the Hub does not list for reasons that pass."""

_PASSING = frozenset({"not-found", "private-or-missing", "gated", "disabled", "hub-bad-answer"})
"""What is wrong with one parent's listing only."""

_MAY_PASS = frozenset({"hub-unreachable", "rate-limited", "unauthorized"})
"""What may be wrong with one parent's listing only; several in a row end the walk."""


@dataclass(slots=True, kw_only=True)
class WalkCounts:
    """What a walk did: names whose children were listed, of them those that were listed before and
    cost no request; models whose children were not requested, or were as the Hub does not count
    them, or may be below the last level; why children are missing, current by earlier ids, and how
    many the Hub counts and does not list."""

    parents: int = 0
    remembered: int = 0
    childless: int = 0
    uncounted: int = 0
    below_depth: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    unlisted: dict[str, int] = field(default_factory=dict)
    missing: str | None = None


@dataclass(slots=True, kw_only=True)
class FamilyWalk:
    """Every fine-tune of a base at any depth, once: its children, then theirs, newest first.

    Quantised copies are listed, but their children are not. A page is requested when its first
    model is wanted, and one more listing for every model that may have children. A `SourceError`
    where the base cannot be listed, or several parents in a row cannot; another walk with the same
    memory goes on where it stopped.

    Attributes:
        aliases: Further names of the base, whose children are the base's.
        depth: Generations below the base; None for all.
        counts: Is filled while the walk goes on.
        levels: By id in lower case, the generation of its children, 1 for the base's.
        kept_as: The name of a listing in the memory: the Hub shows others without a token.
    """

    base: str
    memory: ListingMemory
    aliases: Sequence[str] = ()
    depth: int | None = None
    session: HubSession = field(default_factory=default_session)
    counts: WalkCounts = field(default_factory=WalkCounts)
    levels: dict[str, int] = field(default_factory=dict)
    parents: deque[str] = field(default_factory=deque)
    unanswered: int = 0
    kept_as: str = "{}"

    def __iter__(self) -> Iterator[HubModel]:
        if not self.session.offline and not self.session.has_token:
            self.kept_as = "{}#anonymous"
        names = self._spellings()
        yield from self._below(names)
        # models without an owner were given one, and some cards have their old names
        bare = names[0].rpartition("/")[2]
        is_new = self.counts.missing is None and bare.lower() not in self.levels
        if is_new and self._leads_to(bare, names[0]):
            self.counts.renamed[bare] = names[0]
            yield from self._below([bare])

    def _below(self, names: Sequence[str]) -> Iterator[HubModel]:
        """The models below a base of these names, each once."""
        self.levels |= dict.fromkeys(map(str.lower, names), 1)
        self.parents.extend(names)
        while self.parents:
            parent = self.parents.popleft()
            level = self.levels[parent.lower()]
            for model in self._children(parent, is_base=level == 1):
                if model.id.lower() not in self.levels:
                    self.levels[model.id.lower()] = level + 1
                    if model.kind in ("full", "adapter"):
                        self._add_parent(model, level)
                    yield model

    def _spellings(self) -> list[str]:
        try:
            names = [describe(self.base, session=self.session).id, self.base]
        except ModelError as err:
            if err.code not in _PASSING and err.code != "offline":
                raise SourceError(f"the family of {self.base} cannot be listed: {err}") from err
            names, self.counts.missing = [self.base], str(err)
        if names[0].lower() != self.base.lower():
            self.counts.renamed[self.base] = names[0]
        names += filter(is_repo_id, self.aliases)
        return list({name.lower(): name for name in reversed(names)}.values())[::-1]

    def _leads_to(self, name: str, id: str) -> bool:
        """Whether a name is that of a model, too; remembered with the listings."""
        key = self.kept_as.format(f"{name}#{CURRENT}")
        known = self.memory.load(key)
        if known is None:
            try:
                known = [{CURRENT: describe(name, session=self.session).id}]
            except ModelError as err:
                if err.code not in _PASSING:
                    log.warning(
                        "whether %s is an earlier name of %s is not known: %s", name, id, err
                    )
                    return False
                known = [{CURRENT: None}]
            self.memory.save(key, known)
        return bool(known[0][CURRENT] == id)

    def _add_parent(self, model: HubModel, level: int) -> None:
        if model.n_children == 0:
            self.counts.childless += 1
        elif level == self.depth:
            self.counts.below_depth += 1
        else:
            self.counts.uncounted += model.n_children is None
            self.parents.append(model.id)
            if model.n_children is not None:
                self.counts.unlisted[model.id] = model.n_children

    def _children(self, parent: str, *, is_base: bool) -> Iterator[HubModel]:
        self.counts.parents += 1
        known = self.memory.load(self.kept_as.format(parent))
        self.counts.remembered += known is not None
        listed = []
        try:
            for raw in request_children(parent, self.session) if known is None else known:
                listed.append(raw)
                if "id" in raw:
                    yield HubModel.from_json(raw)
                elif RENAMED in raw:
                    current = self.counts.renamed[parent] = str(raw[RENAMED])
                    self.levels.setdefault(current.lower(), self.levels[parent.lower()])
        except ModelError as err:
            self.counts.unlisted.pop(parent, None)
            self.unanswered += err.code not in _PASSING
            may_pass = err.code in _MAY_PASS and self.unanswered < MAX_UNANSWERED
            if is_base or not (err.code in _PASSING or may_pass):
                raise SourceError(f"the family of {parent} cannot be listed: {err}") from err
            self.counts.left_out[parent] = str(err)
            log.warning("the children of %s are left out: %s", parent, err)
            return
        missing = self.counts.unlisted.pop(parent, 0) - sum("id" in raw for raw in listed)
        if missing > 0:
            self.counts.unlisted[parent] = missing
            more = agree(missing, "child")
            log.info("%s: the Hub counts %d %s more than it lists", parent, missing, more)
        if known is None:
            self.unanswered = 0
            if listed or self.counts.missing is None:
                self.memory.save(self.kept_as.format(parent), listed)
