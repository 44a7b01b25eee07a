"""Who belongs to a base's family, and what is said of each: names, labels, small files.

Folders, lists and labels that cannot be read are a `SourceError`.
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import yaml

from ..data.rows import TextFile, errors_as, open_named_csv
from ..errors import ModelError, SourceError, nearest_names
from ..records import GATED_NOTE, PRIVATE_NOTE, Exclusion, ModelRecord, storable
from ..results import count
from . import checkpoint as checkpoints
from .adapter import merge_adapter, name_experts, with_peft_names
from .adapter_config import peft_config, stated_method
from .architecture import has_factor
from .checkpoint import Config
from .hub import (
    MAX_SMALL_FILE,
    SKIPPED,
    HubModel,
    HubSession,
    HubWeights,
    describe,
    early_refusal,
    read_small_file,
    stated_bytes,
)
from .options import FamilyOptions
from .tokenizer import LARGEST_TOKENIZER, read_tokenizer
from .untrusted_text import BaseName, base_key, distinct_texts, shown, table_of, text_or_none

log = logging.getLogger(__name__)

MAX_BYTES = 256 << 20
"""A line for each of the Hub's models takes a third of it."""


def resolved(text: str | Path) -> Path | None:
    try:
        return Path(text).expanduser().resolve()
    # NUL and surrogates; an unknown user's home, a loop of links; too long a name
    except (ValueError, RuntimeError, OSError):
        return None


def folder_at(text: str | Path) -> Path | None:
    """The folder that a text means, as it was written; None where there is none."""
    try:
        path = Path(text).expanduser()
        return path if path.is_dir() else None
    except (ValueError, RuntimeError, OSError):
        return None


def read_text_file(path: Path, what: str) -> str:
    """A file's text in UTF-8, of a pipe too, up to the limit; `what` it is, for the message."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SourceError(f"{path}: larger than {MAX_BYTES} bytes; is it {what}?")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise SourceError(f"{path}: cannot be read as {what}: not text in UTF-8") from err
    except OSError as err:
        raise SourceError(f"{path}: cannot be read as {what}: {err.strerror}") from err


_NOT_PYTORCH = "models in folders that are hidden or not of PyTorch"

_FULL_WEIGHTS = re.compile(
    r"(?s:.*\.safetensors|pytorch_model.*\.bin)(\.index\.json)?"
    r"|tf_model\.h5|flax_model\.msgpack|(weights|model)(\.\d+)?\.npz|consolidated.*\.pth|.*\.ckpt"
)
"""Weights that are read, or that a folder is refused for as it has no others."""

NAMES_SHOWN = 3
"""Names in a message, of what is left out for one reason, or is in no row of labels."""


@dataclass(slots=True)
class FolderWalk:
    """Model folders at any depth below `root` (itself included), and files that are adapters in
    another form than PEFT's, each of them once: its path from the root, of a link the link's, and
    where it is without links, None where a link leads out.

    Links to folders are followed last, in so far as they stay inside `root`. A folder in the place
    of a weight or config file makes a model too, which is refused when it is read. `root`: absolute
    and without links.
    """

    root: Path
    _seen: set[Path] = field(default_factory=set)
    _links: list[tuple[Path, Path]] = field(default_factory=list)
    _left_out: dict[str, list[Path]] = field(default_factory=lambda: defaultdict(list))

    def __iter__(self) -> Iterator[tuple[Path, Path | None]]:
        self._links = [(Path(), self.root)]
        for name, target in self._links:  # which grow meanwhile
            if target.is_relative_to(self.root):
                yield from self._below(name, target)
            elif is_model_folder(target):
                yield name, None
            else:
                self._left_out["links that lead out of it"].append(name)

    @property
    def left_out(self) -> str:
        """What was left out, by reason; empty where nothing was."""
        reasons = []
        for reason, names in self._left_out.items():
            more = len(names) - NAMES_SHOWN
            listed = ", ".join(map(str, names[:NAMES_SHOWN]))
            reasons.append(f"{listed}{f' and {more} more' * (more > 0)} ({reason})")
        return "; ".join(reasons)

    def _below(self, name: Path, place: Path) -> Iterator[tuple[Path, Path]]:
        """The models at a place and below it, by path; links are noted."""
        waiting = [(name, place)]
        while waiting:
            name, place = waiting.pop()
            if place in self._seen:
                continue
            self._seen.add(place)
            try:
                with os.scandir(place) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except OSError as err:
                if place == self.root:
                    raise SourceError(f"{place}: cannot be listed: {err.strerror}") from err
                self._left_out["cannot be listed"].append(name)
                continue
            folders = [entry for entry in entries if _is_folder(entry)]
            weights = {entry.name for entry in folders if entry.name.endswith(".gguf")}
            is_found = is_model({entry.name for entry in entries} - weights)
            if is_found:
                yield name, place
            inside = []
            for entry in entries:
                below, path = name / entry.name, place / entry.name
                if entry not in folders:
                    if checkpoints.is_foreign_lora(entry.name):
                        yield below, path
                    elif not is_found and entry.is_symlink() and not path.exists():
                        self._left_out["links to nothing"].append(below)
                elif entry.name.startswith(".") or entry.name in SKIPPED:
                    if not entry.is_symlink() and is_model_folder(path):
                        self._left_out[_NOT_PYTORCH].append(below)
                elif entry.is_symlink():
                    self._links.append((below, Path(os.path.realpath(path))))
                else:
                    inside.append((below, path))
            waiting += reversed(inside)


def is_model(names: Collection[str]) -> bool:
    """Whether a folder with these file names looks like one model."""
    return (
        "adapter_config.json" in names
        or any(n in checkpoints.ADAPTER_WEIGHTS or n.endswith(".gguf") for n in names)
        or any(_FULL_WEIGHTS.fullmatch(n) and not checkpoints.is_foreign_lora(n) for n in names)
    )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_model_folder(folder: Path) -> bool:
    """The same of a folder that is not read; False where it cannot be listed."""
    try:
        return is_model(os.listdir(folder))
    except OSError:
        return False


_TUNED_SUFFIX = re.compile(r"(it|instruct|chat)$")
HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")

CLAIMS_SHOWN = 8


def same_base(claim: str, base: str) -> bool:
    """Whether a model that says `claim` belongs to the family of `base`.

    Besides spellings of one name: the instruction-tuned release of a base is a fine-tune of it,
    so its adapters belong to the base's family; and a path on somebody's disk is a loose hint:
    it tells no owner, and may leave that suffix out. A Hub id without the suffix is another model.
    """
    claimed, wanted = BaseName.of(claim), BaseName.of(base)
    if claimed.fits(wanted) or _untuned(claimed).fits(wanted):
        return True
    return not is_hub_id(claim) and claimed.fits(_untuned(wanted))


def is_hub_id(claim: str) -> bool:
    """Whether a name may be a Hub id, and is no path on somebody's disk."""
    return HUB_ID.match(claim) is not None and not claim.startswith((".", "/"))


def _untuned(name: BaseName) -> BaseName:
    return name._replace(last=_TUNED_SUFFIX.sub("", name.last))


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Where a model's files are, and what its small files say. `given`: the folder out of which no
    link leads, None for the model's own; `config`: `config.json`, of an adapter
    `adapter_config.json`, as far as it is known; `claims`: every name of a base that they mention,
    most trusted first; `refusal`: a reason that needs no weights to be known."""

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
    def files(self) -> checkpoints.ModelFolder | None:
        return None if self.folder is None else checkpoints.ModelFolder.at(self.folder, self.given)

    def content(
        self, file: str, session: HubSession | None = None, *, max_bytes: int = MAX_SMALL_FILE
    ) -> bytes | None:
        """A small file beside the weights; None where it is not there."""
        if self.hub is None:
            files = self.files
            return files.start(file, max_bytes + 1) if files and files.has(file) else None
        if self.hub.files is not None and file not in self.hub.files:
            return None
        try:
            return read_small_file(self.hub, file, session=session, max_bytes=max_bytes)
        except ModelError as err:
            if err.code == "not-found":
                return None
            raise

    @property
    def may_tell_words(self) -> bool:
        """Whether a listing refuses it for how its layers are stored, and its input embedding may
        be stored as it was trained."""
        return (
            self.hub is not None
            and self.refusal is not None
            and self.refusal.code == "quantized"
            and checkpoints.choose_weights(self.hub.files or (), adapter=False) is not None
        )

    def checkpoint(
        self,
        plan: checkpoints.ReadPlan = checkpoints.WHOLE_TENSORS,
        session: HubSession | None = None,
        remote: HubWeights | None = None,
    ) -> checkpoints.Checkpoint:
        """The weight files, headers read, or a `ModelError`; an adapter beside the weights that it
        changes is merged, and eight bits are dequantised. `remote`: its weight files on the Hub,
        where they were looked up."""
        if self.is_adapter:
            adapter = with_peft_names(self._opened(plan, session, remote))
            return name_experts(adapter, self.config)
        with ExitStack() as opened:
            checkpoint = self._opened(plan, session, remote)
            opened.callback(checkpoint.close)
            checkpoints.refuse_diffusion(checkpoint)
            checkpoint = checkpoints.dequantised(checkpoint, self.config)
            is_beside = any(map(has_factor, checkpoint.tensors))
            if is_beside and (settings := self.content(ADAPTER, session)):
                checkpoint = merge_adapter(
                    checkpoint, checkpoints.read_json(settings, name=ADAPTER)
                )
            opened.pop_all()
            return checkpoint

    @contextmanager
    def opened(
        self, plan: checkpoints.ReadPlan = checkpoints.WHOLE_TENSORS
    ) -> Iterator[tuple[Member, checkpoints.Checkpoint]]:
        """It with its config, and its weight files for as long as the block lasts; a `ModelError`
        where it is refused or they cannot be read."""
        if self.refusal is not None:
            raise self.refusal
        member = self.with_config()
        with closing(member.checkpoint(plan)) as checkpoint:
            yield member, checkpoint

    def _opened(
        self, plan: checkpoints.ReadPlan, session: HubSession | None, remote: HubWeights | None
    ) -> checkpoints.Checkpoint:
        if self.hub is not None:
            return (remote or HubWeights(self.hub, plan, session=session)).open()
        assert self.folder is not None
        if self.is_adapter:
            return checkpoints.open_adapter_weights(self.folder, given=self.given)
        return checkpoints.open_local(self.folder, given=self.given, whole=plan.whole)

    def tokenizer(self, session: HubSession | None = None) -> bytes | None:
        """The JSON of its tokenizer; None where it has no files of one."""
        return read_tokenizer(lambda file: self.content(file, session, max_bytes=LARGEST_TOKENIZER))

    def with_config(self, session: HubSession | None = None) -> Member:
        """The member with its config; of a Hub model it is fetched only when it is to be read. The
        base that an adapter's names counts where the Hub's description has none, or where that is
        of several models or bases."""
        model, name = self.hub, ADAPTER if self.is_adapter else "config.json"
        content = None if model is None or self.config else self.content(name, session)
        if model is None or content is None:
            return self
        stated = checkpoints.read_json(content, name=name)
        if not self.is_adapter:
            return replace(self, config=stated)
        config = peft_config(stated)
        record, claims = replace(self.record, method=stated_method(config)), self.claims
        own = distinct_texts([config.get("base_model_name_or_path")])
        of_several = model.folder != "" or len(model.base_models) > 1
        if own and (not claims or (of_several and is_hub_id(own[0]))):
            record, claims = replace(record, base_raw=own[0]), own
        return replace(self, config=config, claims=claims, record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The base as members may refer to it; `kin`: ids of its family on the Hub, one of which an
    adapter may name."""

    names: tuple[str, ...]
    folder: Path | None = None
    config: Config | None = None
    kin: frozenset[str] = frozenset()

    def named_in(self, claims: Iterable[str]) -> bool:
        return any(
            claim in self.kin
            or (self.folder is not None and resolved(claim) == self.folder)
            or any(same_base(claim, name) for name in self.names)
            for claim in claims
        )


def refuse_strangers(member: Member, wanted: Wanted) -> Member:
    """The member, refused if its small files alone show that it belongs elsewhere.

    A full checkpoint's claims are loose (it may name an intermediate fine-tune), so its
    weights decide; an adapter's weights cannot show its base, so its claim decides.
    """
    if member.refusal is not None and member.refusal.code != "quantized":
        return member
    if member.claims and not wanted.named_in(member.claims) and member.is_adapter:
        return replace(member, refusal=ModelError("other-base", _named(member.claims)))
    own, base = (checkpoints.model_type(c) for c in (member.config, wanted.config))
    if member.is_adapter or own is None or base is None or own == base:
        return member
    types = f"its architecture is {shown(own)}, the base's is {shown(base)}"
    return replace(member, refusal=ModelError("other-base", f"{_named(member.claims)}; {types}"))


def _named(claims: Sequence[str]) -> str:
    listed = " and ".join(map(shown, claims[:CLAIMS_SHOWN]))
    return f"names base {listed}" if claims else "names no base"


Kind = Literal["full", "merge", "adapter", "quantized", "other"]
Format = Literal["safetensors", "bin", "gguf", "npz", "none", "unknown"]


def is_wanted(member: Member, options: FamilyOptions) -> bool:
    if options.only is not None and member.record.id not in options.only:
        return False
    downloads = member.record.downloads
    if downloads is not None and downloads < (options.min_downloads or 0):
        return False
    kind, form = kind_of(member), format_of(member)
    properties: dict[Exclusion, bool] = {
        "adapters": kind == "adapter",
        "bin": form == "bin",
        "full": kind in ("full", "merge"),
        "gguf": form == "gguf",
        "merges": kind == "merge",
        "quantized": kind == "quantized",
    }
    return not any(properties[name] for name in options.exclude)


def kind_of(member: Member) -> Kind:
    """What a member is, as far as its listing or its small files tell."""
    if member.refusal is not None and member.refusal.code == "quantized":
        return "quantized"
    if member.is_adapter:
        return "adapter"
    declared = (member.config or {}).get("quantization_config")
    is_declared = isinstance(declared, Mapping) and checkpoints.is_eight_bit(declared)
    if is_declared or format_of(member) == "gguf":
        return "quantized"
    if member.hub is not None and member.hub.kind in ("quantized", "other"):
        return "quantized" if member.hub.kind == "quantized" else "other"
    return "merge" if member.is_merge else "full"


def format_of(member: Member) -> Format:
    """How a member's weights are stored, by the names of its files."""
    names = file_names(member)
    if names is None:
        return "unknown"
    chosen = checkpoints.choose_weights(names, adapter=member.is_adapter)
    if chosen is None:
        return "gguf" if any(name.endswith(".gguf") for name in names) else "none"
    form: Format = "bin" if chosen.endswith((".bin", ".bin.index.json")) else "safetensors"
    return {".gguf": "gguf", ".npz": "npz"}.get(Path(chosen).suffix, form)  # type: ignore[return-value]


def file_names(member: Member) -> Collection[str] | None:
    if member.hub is not None:
        return member.hub.files
    with suppress(ModelError):
        return None if member.files is None else member.files.names()
    return None


MAX_CARD_CHARS = 400_000
MAX_PARENTS = 64

MAX_DEPTH = 50
"""Lists and mappings within one another; real cards have some six."""

MAX_SCALAR = 10_000
"""Characters of a value that YAML may take for a number: base-60 digits cost their square."""

_canonical = partial(table_of, "canonical_datasets.json")

_CLOSING = re.compile(r"^---[ \t\r]*$", re.MULTILINE)

MAX_RESULTS = 10_000
"""Results that are read of a model-index; by its anchor a card can repeat one without end."""

_SENTENCE = re.compile(
    r"fine[- ]?tuned version of .{1,300}? on the "
    r"\[?`?(?P<name>[\w./ -]{2,80}?)`?\]?(\([^)]{0,300}\))? dataset",
    re.IGNORECASE | re.DOTALL,
)


class _CardLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without merge keys, of which a few lines expand to any size."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None: ...


def split_card(text: str) -> tuple[dict[str, object], str]:
    """(front matter, body); an unreadable front matter counts as empty."""
    text = text[:MAX_CARD_CHARS]
    first, _, rest = text.removeprefix("\ufeff").lstrip().partition("\n")
    closing = _CLOSING.search(rest) if first.rstrip() == "---" else None
    if closing is None:
        return {}, text
    front = _read_yaml(rest[: closing.start()])
    return (dict(front) if isinstance(front, Mapping) else {}), rest[closing.end() + 1 :]


def card_bases(front: Config) -> tuple[str, ...]:
    """Every base_model that a card names, in its order: a merge has several."""
    value = front.get("base_model")
    return distinct_texts(value[:MAX_PARENTS] if isinstance(value, list) else [value])


def parents_note(parents: Sequence[str]) -> tuple[str, ...]:
    """What a model's notes say of several parents; nothing of spellings of one."""
    distinct = {base_key(parent): parent for parent in reversed(parents)}
    if len(distinct) < 2:
        return ()
    listed = ", ".join(shown(parent) for parent in parents if parent in distinct.values())
    return (f"its card names the parents {listed}",)


def _read_yaml(text: str) -> object:
    try:
        return yaml.load(text, _CardLoader) if _is_modest(text) else None
    # PyYAML's constructors fail in any way on values that are not of their tag.
    except Exception:
        return None


def _is_modest(text: str) -> bool:
    """Whether neither nesting nor a number could take long, by its events alone."""
    depth = 0
    for event in yaml.parse(text, _CardLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            may_be_number = event.tag or event.implicit[0]
            if may_be_number and len(event.value) > MAX_SCALAR:
                return False
    return True


def label_of(
    *, name: str, tags: Iterable[object] = (), card: Config | None = None, text: str = ""
) -> dict[str, Any]:
    """`dataset`, `dataset_raw` and `label_source` of a `ModelRecord`, by the first label that names
    data: tags, card, model-index, card sentence, name. A collection of which nothing tells the part
    is no label to compare: it is kept as it is spelled, beside a name's guess too."""
    card = card or {}
    hint = _name_hint(name)
    collection, needs_part = "", _canonical()["needs_config"]
    for source, labels in (
        ("tags", [str(t)[8:] for t in tags if str(t).startswith("dataset:")]),
        ("card", _strings(card.get("datasets"))),
        ("model-index", _index_datasets(card.get("model-index"))),
        ("sentence", [m["name"]] if (m := _SENTENCE.search(text[:100_000])) else []),
        ("name", [hint] if hint else []),
    ):
        names = sorted({n for raw in labels if (n := normalise(raw, hint=hint))})
        if names:
            spelled = "+".join(sorted(set(labels)))
            raw = (source == "name" and collection) or spelled
            return {"dataset": "+".join(names), "dataset_raw": raw, "label_source": source}
        of_several = {r for r in labels if r.strip().rsplit("/", 1)[-1].lower() in needs_part}
        collection = collection or "+".join(sorted(of_several))
    return {"dataset": None, "dataset_raw": collection or None, "label_source": None}


def normalise(raw: str, *, hint: str | None = None) -> str | None:
    """`raw` without the owner of a well-known dataset; None where it names no data.

    A collection (GLUE) means nothing without the part that was used: that comes from
    `collection/part`, or from `hint`, the part that the model's own name mentions.
    """
    data = _canonical()
    parts = [re.sub(r"[\s-]+", "_", p.strip().lower()) for p in raw.strip().split("/") if p.strip()]
    if not parts or parts[-1] in data["meaningless"]:
        return None
    known = next((i for i, p in enumerate(parts) if p in data["names"]), None)
    if known is None:
        return "/".join(parts)
    collection, rest = parts[known], parts[known + 1 :]
    if collection not in data["needs_config"]:
        return "/".join([collection, *rest])
    if rest:
        return f"{collection}/{rest[0]}"
    return hint if hint and hint.startswith(collection + "/") else None


def _name_hint(name: str) -> str | None:
    """The well-known dataset that a model's own name mentions between hyphens, longest first."""
    table: dict[str, str] = _canonical()["in_names"]
    hyphenated = "-" + re.sub(r"[^a-z0-9]+", "-", name.lower().rsplit("/", 1)[-1]) + "-"
    mentions = [word for word in table if f"-{word.replace('_', '-')}-" in hyphenated]
    return table[max(mentions, key=len)] if mentions else None


def _index_datasets(index: object) -> list[str]:
    names = []
    entries = index if isinstance(index, list) else []
    results = (result for entry in entries for result in _dicts(entry, "results"))
    for result in islice(results, MAX_RESULTS):
        dataset = result.get("dataset")
        if not isinstance(dataset, Mapping):
            continue
        name = dataset.get("type") or dataset.get("name")
        part = dataset.get("config") or dataset.get("args")
        if isinstance(name, str):
            needs_part = name.rsplit("/", 1)[-1].lower() in _canonical()["needs_config"]
            names.append(f"{name}/{part}" if needs_part and isinstance(part, str) else name)
    return names


def _dicts(entry: object, key: str) -> list[Mapping[str, object]]:
    values = entry.get(key) if isinstance(entry, Mapping) else None
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list) else []


def _strings(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]


COLUMNS = ("model", "dataset", "author", "run")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A line: None where the column is absent, "" where the cell is empty."""

    model: str = field(compare=False)
    dataset: str | None
    author: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class LabelsFile:
    """Rows by model id and by the folder that the id means beside the file."""

    path: Path
    by_id: Mapping[str, LabelRow]
    by_folder: Mapping[Path, LabelRow]

    def rows_of(self, record: ModelRecord, folder: Path | None) -> list[LabelRow]:
        """The rows of a model, by its path beside the file and by its id, unless that is another
        folder's path; a `SourceError` where their labels differ."""
        of_path = self.by_folder.get(folder) if folder else None
        of_id = self.by_id.get(record.id)
        if of_path and of_id and folder_at(self.path.parent / record.id) is not None:
            of_id = None
        rows = [row for row in (of_path, of_id) if row is not None]
        if rows and rows[0] != rows[-1]:
            names = " and ".join(shown(row.model) for row in rows)
            raise SourceError(f"{self.path}: {names} are one model, which has two labels")
        return rows

    def apply(
        self, record: ModelRecord, folder: Path | None, stored: ModelRecord | None = None
    ) -> ModelRecord:
        """The record with its row's labels, which override other sources; where the file has no
        such column, what an earlier file or the Hub said of the stored model stays."""
        row = next(iter(self.rows_of(record, folder)), None)
        if row is None:
            return record
        before = record
        if stored is not None and (folder is None or stored.label_source == "labels"):
            before = stored
        is_kept = row.dataset is None
        return replace(
            record,
            dataset=before.dataset if is_kept else row.dataset or None,
            dataset_raw=before.dataset_raw if is_kept else row.dataset or record.dataset_raw,
            # of a new model without a word of its data set, a card may say it
            label_source=record.label_source if is_kept and stored is None else "labels",
            author=before.author if row.author is None else row.author or record.author,
            run=before.run if row.run is None else row.run or record.run,
        )

    def match(self, members: Sequence[Member], *, of_some: bool = False) -> dict[str, object]:
        """How many rows there are and name a member, and the names of the others, which are logged;
        a `SourceError` if all are such.

        Of members that are not all that the file is about (`of_some`), the rows that name one.
        """
        matched = {row.model for m in members for row in self.rows_of(m.record, m.folder)}
        rows = len(matched) if of_some else len(self.by_id)
        others = [name for name, row in self.by_id.items() if row.model not in matched]
        unmatched = [] if of_some else others
        n_matched = rows - len(unmatched)
        if unmatched:
            ids = [member.record.id for member in members]
            line = f"{self.path.name}: {count(rows, 'row')}, {n_matched} matched"
            line = f"{line}; {_name_strangers(unmatched, ids)}"
            if not matched:
                listed = ", ".join(map(shown, ids[:NAMES_SHOWN])) + ", …" * (len(ids) > NAMES_SHOWN)
                raise SourceError(
                    f"{line}; a row's model is an id or a path beside the file; the models here "
                    f"are: {listed}"
                )
            log.info("%s", line)
        return {"rows": rows, "matched": n_matched, "unmatched": unmatched}


def _name_strangers(names: Sequence[str], ids: Sequence[str]) -> str:
    """Rows that name no model, the first with the most similar id."""
    near = {name: nearest_names(name, ids) for name in names[:NAMES_SHOWN]}
    lines = [" → ".join(map(shown, (name, *found[:1]))) for name, found in near.items()]
    how = "nearest: " if any(near.values()) else ""
    listed = ", ".join(lines) + ", …" * (len(names) > NAMES_SHOWN)
    return f"{len(names)} name no model here, {how}{listed}"


def read_labels(path: Path) -> LabelsFile:
    """The labels in a table with a `model` column and any of `dataset`, `author`, `run`, separated
    by commas, semicolons or tabs; a `SourceError` if unreadable, or if one model has two labels."""
    by_id: dict[str, LabelRow] = {}
    by_folder: dict[Path, LabelRow] = {}
    content = read_text_file(path, "a labels file").encode()
    with errors_as(SourceError):
        file = TextFile(path, content=content)
        table = open_named_csv(file, ("model",), is_ragged=True, is_quoted=False)
        table.refuse_repeated(COLUMNS)
        for number, row in table.rows(COLUMNS):
            if isinstance(row, str):
                continue
            cells = {name: str(cell).strip() for name, cell in row.items() if cell is not None}
            model = cells.get("model", "").rstrip("/")
            if not model:
                continue
            label = LabelRow(model, *map(cells.get, COLUMNS[1:]))
            folder = resolved(path.parent / model) or Path(model)
            if by_id.setdefault(model, by_folder.setdefault(folder, label)) != label:
                raise SourceError(f"{path}, line {number}: its model has two labels")
    return LabelsFile(path, by_id, by_folder)


ADAPTER = "adapter_config.json"
CARD = "README.md"

_LEADS_OUT = "a link leads out of the folder; index the folder that holds both, or a list of paths"

_STEP_FOLDER = re.compile(r"/?(checkpoint[-_][^/]*|(step|epoch)[-_]?\d+)$", re.IGNORECASE)


def folder_members(folder: Path, base: str, *, leave_out: Path | None) -> Iterator[Member]:
    """Every model below `folder` but the base's; ids are paths below it. What is left out is
    logged."""
    if not folder.is_dir():
        raise SourceError(f"{folder}: no such folder")
    root = folder.resolve()
    walk = FolderWalk(root)
    for name, place in walk:
        id = name.as_posix() if name.parts else root.name
        record = ModelRecord(id=storable(id), base=base, source=storable(str(place or root / id)))
        if place is None:
            yield Member(record=record, refusal=ModelError("outside-folder", _LEADS_OUT))
        elif checkpoints.is_foreign_lora(place.name) and not place.is_dir():
            record = replace(record, kind="adapter", method=None)
            yield Member(record=record, refusal=checkpoints.foreign_lora(place.name))
        elif place != leave_out:
            yield read_member(place, id=id, base=base, given=root)
    if walk.left_out:
        log.warning("%s: left out: %s", folder, walk.left_out)


def listed_members(list_file: Path, base: str) -> Iterator[Member]:
    """The models of a file with one id or path a line, relative to the file's own folder or to the
    current one; `#` begins a comment."""
    for line in read_text_file(list_file, "a list of models").splitlines():
        text = line.split("#", 1)[0].strip()
        if text:
            beside = folder_at(list_file.parent / text)
            yield find_member(str(beside or text), base, id=text)


def find_member(model: str, base: str, *, id: str | None = None) -> Member:
    """The model at a path, or of that id on the Hub."""
    path = folder_at(model)
    if path is not None:
        return read_member(path.resolve(), id=id or _path_id(model), base=base)
    model = storable(model)
    if model.startswith((".", "/", "~")):
        refusal = ModelError("not-found", f"{shown(model)}: no such folder")
        return Member(record=ModelRecord(id=id or _path_id(model), base=base), refusal=refusal)
    try:
        described = describe(model)
    except ModelError as err:
        return Member(record=ModelRecord(id=model, base=base, source="hub"), refusal=err)
    member = member_of(described, base, claims=described.base_models)
    try:  # what the repository names may be the base of another folder's model
        return member.with_config() if member.is_adapter and described.folder else member
    except ModelError as err:
        return replace(member, refusal=err)


def _path_id(path: str) -> str:
    """A path below the current folder as it is from there; any other by its last name."""
    place, here = resolved(path) or Path(path), Path.cwd().resolve()
    return place.relative_to(here).as_posix() if here in place.parents else place.name


def read_member(folder: Path, *, id: str, base: str, given: Path | None = None) -> Member:
    """The model in a folder, absolute and without links; bad small files make it a refused member.
    `given`: the folder that no link may leave; None for the model's own."""
    id = storable(id)
    run = _STEP_FOLDER.sub("", id) or id  # checkpoints below a folder are one training run
    record = ModelRecord(id=id, base=base, source=storable(str(folder)), run=run)
    try:
        return _describe(Member(record=record, folder=folder, given=given))
    except ModelError as err:
        return Member(record=record, folder=folder, given=given, refusal=err)


def _describe(member: Member) -> Member:
    files, record = member.files, member.record
    assert files is not None
    names = sorted(files.names())
    adapter = checkpoints.is_adapter(names)
    front, text = _read_card(files) if CARD in names else ({}, "")
    label = label_of(name=record.id, card=front, text=text)
    weights = [name for name in names if name in checkpoints.ADAPTER_WEIGHTS]
    if not adapter:
        stored = (name for name in names if name.endswith((".safetensors", ".bin")))
        weights = [name for name in stored if not name.startswith(("adapter", "training"))]
    chosen = checkpoints.choose_weights(names, adapter=adapter)
    weights = weights or [name for name in names if name == chosen]
    record = replace(
        record,
        signature=files.signature(),
        kind="adapter" if adapter else "full",
        method=None if adapter else "full",
        **label,
        license=text_or_none(front.get("license")),
        task=text_or_none(front.get("pipeline_tag")),
        bytes_total=sum(map(files.size, weights)),
        notes=parents_note(card_bases(front)),
    )
    member = replace(member, is_merge=bool(record.notes))
    foreign = next(filter(checkpoints.is_foreign_lora, names), None)
    if foreign is not None and chosen is None:
        return replace(member, record=record, refusal=checkpoints.foreign_lora(foreign))
    config_name = "adapter_config.json" if adapter else "config.json"
    try:
        stated = files.json(config_name) if config_name in names else None
    except ModelError as err:
        return replace(member, record=record, refusal=err)
    config = peft_config(stated) if stated is not None and adapter else stated
    settings, scheme = config or {}, None
    if adapter:
        claims = distinct_texts([settings.get("base_model_name_or_path"), *card_bases(front)])
        task = text_or_none(settings.get("task_type")) or record.task
        record = replace(record, task=task, method=stated_method(settings))
    else:
        claims = distinct_texts([*card_bases(front), settings.get("_name_or_path")])
        scheme = checkpoints.quantization(config, (), names)
    return replace(
        member,
        record=replace(record, base_raw=claims[0] if claims else None),
        config=config,
        claims=claims,
        refusal=ModelError("quantized", f"weights are stored as {scheme}") if scheme else None,
    )


def _read_card(files: checkpoints.ModelFolder) -> tuple[dict[str, object], str]:
    """(front matter, body); both empty where it is no file, as a card is no part of a model."""
    try:
        start = files.start(CARD, 4 * MAX_CARD_CHARS)
    except ModelError as err:
        if err.code == "outside-folder":
            raise
        return {}, ""
    return split_card(start.decode("utf-8", "replace"))


def stated_license(files: checkpoints.ModelFolder) -> str | None:
    """The licence that a folder's card names."""
    front = _read_card(files)[0] if CARD in files.names() else {}
    return text_or_none(front.get("license"))


def member_of(model: HubModel, base: str, *, claims: tuple[str, ...]) -> Member:
    """A Hub model as a member, its labels read from what the Hub said of it."""
    label = label_of(name=model.name, tags=model.tags, card=_stated_card(model))
    adapter = model.kind == "adapter"
    parents = parents_note(model.base_models)
    notes = (*parents, GATED_NOTE * bool(model.gated), PRIVATE_NOTE * model.private)
    record = ModelRecord(
        id=model.name,
        base=base,
        base_raw=model.base_models[0] if model.base_models else None,
        revision=model.sha or None,
        signature=model.sha,
        kind="adapter" if adapter else "full",
        method=None if adapter else "full",
        source="hub",
        author=model.id.split("/")[0] if "/" in model.id else None,
        run=model.id,
        **label,
        task=model.pipeline_tag,
        license=model.license,
        downloads=model.downloads,
        created_at=model.created_at,
        notes=tuple(filter(None, notes)),
    )
    return Member(
        record=record,
        hub=model,
        claims=claims,
        refusal=early_refusal(model),
        is_merge=model.relation == "merge" or bool(parents),
    )


def _stated_card(model: HubModel) -> dict[str, object]:
    """The front matter as the Hub states it, without what it does not state."""
    stated = {**model.card_data, "model-index": model.model_index}
    return {name: value for name, value in stated.items() if value is not None}


MAX_CARD_BYTES = 4 * MAX_CARD_CHARS

LONGEST_CALL_S = 20.0
"""A label is not worth the time that weights are."""


def needs_card(member: Member) -> bool:
    model = member.hub
    return (
        model is not None
        and member.refusal is None
        and member.record.label_source in (None, "name")
        and (model.files is None or CARD in model.files)
    )


def with_card_label(member: Member, session: HubSession) -> Member:
    """The member with the label of its card, where it needs one and the Hub stated none."""
    if member.hub is None or not needs_card(member):
        return member
    patience = replace(
        session.patience, call_s=min(session.patience.call_s, LONGEST_CALL_S), tries=2
    )
    try:
        content = read_small_file(
            member.hub, CARD, session=session, max_bytes=MAX_CARD_BYTES, patience=patience
        )
        front, text = split_card(content.decode("utf-8", "replace"))
        card = {**front, **_stated_card(member.hub)}
        label = label_of(name=member.record.id, tags=member.hub.tags, card=card, text=text)
    except ModelError as err:
        log.info("%s: its card is not read: %s", member.record.id, err)
        return member
    # A card's text must not cost its model, whatever is wrong with it.
    except Exception:
        log.debug("%s: defect while reading its card", member.record.id, exc_info=True)
        return member
    return replace(member, record=replace(member.record, **label))
