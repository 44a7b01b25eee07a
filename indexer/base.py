"""A family's base: its name always, its weights when something needs them."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..errors import BaseError, ModelError
from ..records import ModelRecord
from ..results import size
from ..store import Catalog
from . import hub
from .architecture import (
    Key,
    PlacedModel,
    Placement,
    loaded_shape,
    path_ends,
    place,
    read_attention_config,
    whole_modules,
)
from .checkpoint import (
    FEW_BYTES,
    READ_AGAIN,
    WHOLE_TENSORS,
    Checkpoint,
    Config,
    DerivedCheckpoint,
    GgufCheckpoint,
    ModelFolder,
    ReadPlan,
    RowBlock,
    TensorRef,
    dequantised,
    model_type,
    open_local,
    quantization,
    read_json,
)
from .delta import flaw_of, frobenius
from .family import Member, Wanted, folder_at, stated_license
from .untrusted_text import base_key
from .weight_samples import MatrixSample, layer_matrices, sample_matrices

log = logging.getLogger(__name__)

REMOTE_MEMORY = 1 << 30
"""Bytes of a remote base that stay in memory between models; the rest is read again."""


BLOCK_VALUES = 1 << 22
"""Entries of a tensor that are held at once."""

WHOLE_BASE = replace(WHOLE_TENSORS, whole=True)


def place_checkpoint(
    checkpoint: Checkpoint, config: Config | None, *, whole: bool = False
) -> PlacedModel:
    """Where its tensors belong, those that are `unread` among them; `whole`: fused matrices as
    modules, in one piece."""
    scheme = quantization(config, checkpoint.tensors.values(), ())
    if scheme:
        raise ModelError("quantized", f"weights are stored as {scheme}")
    placed = place({n: t.shape for n, t in checkpoint.tensors.items()}, config)
    return whole_modules(placed) if whole else placed


def require_same_heads(checkpoint: Checkpoint, config: Config | None) -> None:
    """Refuse, as `shape-mismatch`, a GGUF model whose header counts other heads than the config of
    its base: the rows of its queries and keys are put in order by that number."""
    if isinstance(checkpoint, GgufCheckpoint):
        stated = read_attention_config(config)
        expected = stated.n_heads, stated.n_kv_heads or stated.n_heads
        kinds = zip(checkpoint.heads, expected, ("query", "key-value"), strict=True)
        for counted, n, kind in kinds:
            if isinstance(counted, int) and n not in (None, counted):
                line = f"its GGUF header counts {counted} {kind} heads, the base's config {n}"
                raise ModelError("shape-mismatch", f"{line}; index it with its own base")


def stream_matrices(
    checkpoint: Checkpoint, placed: PlacedModel
) -> Iterator[tuple[list[Placement], torch.Tensor]]:
    """Every stored matrix with the placements in it, in the order that reads them best.

    Experts that are stacked in one tensor come one at a time: all of a layer's are gigabytes.
    """
    wanted = placed.by_tensor()
    if all(placement.index is None for placement in placed.placements):
        for name, tensor in checkpoint.stream(wanted):
            yield wanted[name], tensor
        return
    users: dict[RowBlock, list[Placement]] = {}
    for placement in placed.placements:
        users.setdefault(_matrix_block(placement, checkpoint), []).append(placement)
    for block, matrix in checkpoint.stream_rows(users):
        yield users[block], matrix


def _matrix_block(placement: Placement, checkpoint: Checkpoint) -> RowBlock:
    n_rows = checkpoint.tensors[placement.tensor].shape[-2]
    first = (placement.index or 0) * n_rows
    return RowBlock(placement.tensor, first, first + n_rows)


def blocks_of(checkpoint: Checkpoint, name: str) -> Iterator[torch.Tensor]:
    """A tensor in its stored type, some rows at a time."""
    ref = checkpoint.tensors[name]
    if len(ref.shape) < 2 or 0 in ref.shape:
        yield checkpoint.read(name)
        return
    n_rows = math.prod(ref.shape[:-1])
    height = max(1, BLOCK_VALUES // ref.shape[-1])
    starts = range(0, n_rows, height)
    wanted = [RowBlock(name, start, min(start + height, n_rows)) for start in starts]
    yield from (rows for _, rows in checkpoint.stream_rows(wanted))


def are_equal(
    ours: Checkpoint, name: str, theirs: Checkpoint, other: str, *, either: bool = False
) -> bool:
    """Whether a tensor has the base's values, as they are or as the model's type rounds them;
    `either`: as both types round values that neither may hold. Of two numbers of rows the first
    that both have. Tensors of other widths are not equal."""
    if ours.tensors[name].shape[1:] != theirs.tensors[other].shape[1:]:
        return False
    for child, base in zip(blocks_of(ours, name), blocks_of(theirs, other), strict=False):
        if child.dim():
            height = min(len(child), len(base))
            child, base = child[:height], base[:height]
        if not _is_rounding(child, base, either=either):
            return False
    return True


def _is_rounding(child: torch.Tensor, base: torch.Tensor, *, either: bool) -> bool:
    """Of `either`: whether what the longer type may have rounded is what the shorter one has, since
    a bfloat16 of a number and of its float16 may differ."""
    are_floats = child.is_floating_point() and base.is_floating_point()
    if not either or child.dtype == base.dtype or not are_floats:
        return torch.equal(child, base.to(child.dtype))
    fine, coarse = sorted((child, base), key=lambda tensor: torch.finfo(tensor.dtype).eps)
    limits, values = torch.finfo(fine.dtype), fine.double()
    half = values.abs().clamp(min=limits.tiny) * (limits.eps / 2)
    low, high = ((values + step).to(coarse.dtype).double() for step in (-half, half))
    return bool(((low <= coarse.double()) & (coarse.double() <= high)).all())


_TOKENS = re.compile(
    r"(^|\.)(embed_tokens|wte|word_embeddings?|embed_in|tok_embeddings|shared|token_embedding"
    r"|tokens_embed|word_emb|embeddings?|emb|embed)\.(weight|emb_layers\.0\.weight)$"
)
_IN_LAYER = re.compile(r"\.\d+\.")
_OTHER = re.compile(r"position|pos_emb|token_type|segment|patch|relative|lm_head|class_emb")


def find_embedding(tensors: Mapping[str, TensorRef], config: Config | None) -> TensorRef | None:
    """The matrix of the input tokens, (rows, width): outside the numbered blocks, by its name; of
    several the one of the config's vocabulary, else of most rows."""
    inner = (config or {}).get("text_config")
    wanted = (inner if isinstance(inner, Mapping) else config or {}).get("vocab_size")
    found = [
        ref
        for name, ref in tensors.items()
        if len(ref.shape) == 2
        and all(ref.shape)
        and _TOKENS.search(name)
        and not _IN_LAYER.search(name)
        and not _OTHER.search(name)
    ]
    return max(
        found,
        key=lambda ref: (ref.shape[0] == wanted, ref.shape[0], -len(ref.name), ref.name),
        default=None,
    )


def is_before_layers(ref: TensorRef, tensors: Mapping[str, TensorRef]) -> bool:
    """Whether it lies before all of the numbered blocks of a file, whose tensors are in order:
    bytes that are hashed are best read in theirs."""
    return next(name for name in tensors if name == ref.name or _IN_LAYER.search(name)) == ref.name


@dataclass(slots=True)
class BaseWeights:
    """The opened base: where each slot's matrix is, and the matrices. Safe between threads."""

    name: str
    revision: str | None
    config: Config | None
    checkpoint: Checkpoint
    placed: PlacedModel
    license: str | None = None
    _cached: dict[RowBlock, torch.Tensor] = field(default_factory=dict)
    _cached_bytes: int = 0
    _embedding: torch.Tensor | None = None
    _last: threading.local = field(default_factory=threading.local)
    _norms: dict[Key, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def architecture(self) -> str | None:
        return model_type(self.config)

    def verify(self, *, keep: bool, embedding: bool = False) -> None:
        """Read the files whole, once, and compare them with what is listed of them, or raise a
        `ModelError`. `keep`: matrices of a remote base stay in memory, as far as there is room;
        `embedding`: and that of its tokens."""
        if keep and not self.checkpoint.concurrent:
            ref = find_embedding(self.checkpoint.tensors, self.config) if embedding else None
            if ref is not None and is_before_layers(ref, self.checkpoint.tensors):
                self.held_embedding(ref.name)
            for placements, matrix in stream_matrices(self.checkpoint, self.placed):
                with self._lock:
                    self._keep(_matrix_block(placements[0], self.checkpoint), matrix)
            if ref is not None:
                self.held_embedding(ref.name)
        self.checkpoint.verify()

    @contextmanager
    def matrix(self, key: Key) -> Iterator[torch.Tensor]:
        """The base's (out, in) matrix of one slot part, in its stored type, for a block."""
        placement = self.placed.by_key[key]
        with ExitStack() as opened:
            try:
                if self.checkpoint.concurrent:
                    tensor = opened.enter_context(self.checkpoint.view(placement.tensor))
                    matrix = placement.cut(tensor)
                else:
                    matrix = placement.cut_matrix(self._fetched(placement))
            except ModelError as err:
                raise BaseError(f"base {self.name}: {err.reason}") from err
            yield matrix

    def held_embedding(self, name: str) -> torch.Tensor:
        """A remote base's embedding, read once and held: every model is compared with it."""
        with self._lock:
            if self._embedding is None:
                self._embedding = self.checkpoint.read(name)
            return self._embedding

    def norm(self, key: Key, matrix: torch.Tensor) -> float:
        """|W| of one slot part, Frobenius; measured once, on the matrix that was read."""
        norm = self._norms.get(key)
        if norm is None:
            norm = frobenius(matrix)
            if flaw := flaw_of(norm, matrix):
                tensor = self.placed.by_key[key].tensor
                raise BaseError(f"base {self.name}: tensor {tensor!r} {flaw}")
            self._norms[key] = norm
        return norm

    def shape_of(self, module: str) -> tuple[int, int]:
        """(out, in) of the whole matrix that a module path ends in, fused rows and all."""
        by_module = self.placed.by_module
        for end in path_ends(module, self.placed.longest_module):
            if (placement := by_module.get(end)) is not None:
                shape = self.checkpoint.tensors[placement.tensor].shape[-2:]
                n_out, n_in = reversed(shape) if placement.transposed else shape
                return n_out, n_in
        if (loaded := loaded_shape(module, self.placed, self.config)) is not None:
            return loaded
        raise ModelError("unknown-targets", f"module {module!r} is not in {self.name}")

    def _fetched(self, placement: Placement) -> torch.Tensor:
        """A remote base's matrix: cached while there is room; each thread also holds its last."""
        block = _matrix_block(placement, self.checkpoint)
        if getattr(self._last, "block", None) == block:
            last: torch.Tensor = self._last.matrix
            return last
        with self._lock:
            matrix = self._cached.get(block)
            if matrix is None and placement.index is None:
                matrix = self.checkpoint.read(placement.tensor)
            elif matrix is None:
                ((_, matrix),) = self.checkpoint.stream_rows([block])
            self._keep(block, matrix)
        self._last.block, self._last.matrix = block, matrix
        return matrix

    def _keep(self, block: RowBlock, matrix: torch.Tensor) -> None:
        if block not in self._cached and self._cached_bytes + matrix.nbytes <= REMOTE_MEMORY:
            self._cached[block] = matrix
            self._cached_bytes += matrix.nbytes


class Cancelled(Exception):
    """The run is being stopped; the current model is dropped."""


@dataclass(slots=True)
class Base:
    """A base by name; `weights()` opens it on first use, and fails the same way each time.
    `by_module`: its fused matrices are compared in one piece."""

    name: str
    folder: Path | None = None
    aliases: tuple[str, ...] = ()
    plan: ReadPlan = WHOLE_BASE
    session: hub.HubSession = field(default_factory=hub.run_session)
    kept: hub.RangeFolder = field(default_factory=hub.RangeFolder)
    by_module: bool = False
    _weights: BaseWeights | None = None
    _described: hub.HubModel | None = None
    _samples: tuple[MatrixSample, ...] | None = None
    _tokenizer: bytes | None = None
    _verified: bool = False
    _failure: str | None = None
    _bytes_before: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        return _base_elsewhere, (self.name, self.folder, self.aliases, self.session.endpoint)

    def weights(self) -> BaseWeights:
        """The opened base, or a `BaseError`; the same answer every time."""
        with self._lock, self._failing(for_good=True):
            if self._weights is None:
                try:
                    self._weights = self._open()
                except ModelError as err:
                    # ranges that are kept may be what is wrong with it
                    if err.code not in READ_AGAIN or not self.kept.forget():
                        raise
                    self._weights = self._open_again(err)
            return self._weights

    def samples(self) -> tuple[MatrixSample, ...]:
        """A run of every layer matrix; few bytes of a remote base, whatever its plan. A `BaseError`
        where it cannot be read."""
        with self._lock, self._failing(for_good=False):
            if self._samples is None:
                opened = replace(self, plan=FEW_BYTES)._open()
                with closing(opened.checkpoint) as checkpoint:
                    matrices = layer_matrices(checkpoint.tensors, opened.config)
                    self._samples = sample_matrices(checkpoint, matrices)
                    self._bytes_before += _fetched_by(opened)
            return self._samples

    def verify(self, *, keep: bool, embedding: bool = False) -> None:
        """Open the base, and compare all its bytes with what is listed of them; once a run. A base
        whose bytes differ is read a second time; a `BaseError` is the answer from then on, but
        where it could not be read."""
        self.weights()
        with self._lock, self._failing(for_good=False):
            if self._verified:
                return
            try:
                self._weights = self._weights or self._open()
                self._weights.verify(keep=keep, embedding=embedding)
            except ModelError as err:
                if err.code not in READ_AGAIN:
                    raise
                self._weights = self._open_again(err)
                self._weights.verify(keep=keep, embedding=embedding)
            self._verified = True

    @contextmanager
    def _failing(self, *, for_good: bool) -> Iterator[None]:
        """Raise what fails; `for_good`, or where the files are at fault, ever after too."""
        if self._failure is not None:
            raise BaseError(self._failure)
        try:
            yield
        except ModelError as err:
            line = f"base {self.name}: {err}"
            if for_good or err.code in READ_AGAIN:
                self._failure = line
            raise BaseError(line) from err

    def tokenizer(self) -> bytes | None:
        """The JSON of its tokenizer, read once; None where it has no files of one."""
        with self._lock:
            if self._tokenizer is None:
                record, content = ModelRecord(id=self.name, base=self.name), None
                try:
                    described = self.description() if self.folder is None else None
                    member = Member(record=record, folder=self.folder, hub=described)
                    content = member.tokenizer(self.session)
                except ModelError as err:
                    log.warning("base %s: its tokenizer cannot be read: %s", self.name, err.reason)
                self._tokenizer = content or b""
            return self._tokenizer or None

    def opened(self) -> BaseWeights | None:
        """The weights if they can be read at once: a local folder, or opened before."""
        return self.weights() if self.folder is not None else self._weights

    @property
    def bytes_fetched(self) -> int:
        """Bytes of a remote base that were fetched; of a cached base, none."""
        return self._bytes_before + _fetched_by(self._weights)

    def stop_if_cancelled(self) -> None:
        if self.session.cancelled.is_set():
            raise Cancelled

    def say_what_was_kept(self) -> None:
        if self.kept.bytes_used:
            log.info("base %s: %s from %s", self.name, size(self.kept.bytes_used), self.kept.folder)

    def _open_again(self, err: ModelError) -> BaseWeights:
        log.info("base %s: %s; it is read once more", self.name, err.code)
        self._bytes_before += _fetched_by(self._weights)
        self._weights = self._described = None
        return self._open()

    def description(self) -> hub.HubModel:
        """What the Hub says of a base that is there; asked once."""
        if self._described is None:
            self._described = hub.describe(self.name, session=self.session)
        return self._described

    def _open(self) -> BaseWeights:
        config: Config | None = None
        revision = None
        if self.folder is not None:
            files = ModelFolder.at(self.folder)
            config = files.json("config.json") if files.has("config.json") else None
            license = stated_license(files)
            checkpoint = open_local(self.folder, whole=self.plan.whole, often=True)
        else:
            model = self.description()
            revision, license = model.sha, model.license
            config = read_json(hub.read_small_file(model, "config.json", session=self.session))
            weights = hub.HubWeights(
                model, self.plan, adapter=False, session=self.session, kept=self.kept
            )
            checkpoint = weights.open()
        checkpoint = dequantised(checkpoint, config, is_base=True)
        if isinstance(checkpoint, DerivedCheckpoint):
            config = {k: v for k, v in (config or {}).items() if k != "quantization_config"}
        require_same_heads(checkpoint, config)
        placed = place_checkpoint(checkpoint, config, whole=self.by_module)
        return BaseWeights(self.name, revision, config, checkpoint, placed, license)


def _fetched_by(opened: BaseWeights | None) -> int:
    if opened is None or opened.checkpoint.concurrent:
        return 0
    return opened.checkpoint.bytes_read


def _base_elsewhere(
    name: str, folder: Path | None, aliases: tuple[str, ...], endpoint: str
) -> Base:
    session = replace(hub.run_session(), endpoint=endpoint)
    return Base(name=name, folder=folder, aliases=aliases, session=session)


def resolve_base(catalog: Catalog, spelling: str, aliases: Sequence[str] = ()) -> Base:
    """The base that a user means: a folder, or a name in whatever spelling is known already; a
    `BaseError` for a folder without a readable model."""
    folder = folder_at(spelling)
    key = base_key(spelling if folder is None else str(folder.resolve()))
    same = [name for name in catalog.bases() if base_key(name) == key]
    if folder is not None:
        folder = folder.resolve()
        names = (b for b in same if not Path(b).is_absolute())
        base = Base(name=next(names, str(folder)), folder=folder, aliases=tuple(aliases))
        declared = (base.weights().config or {}).get("_name_or_path")
        if isinstance(declared, str) and declared:
            base.aliases = (*aliases, declared)
        return base
    if spelling.startswith((".", "/", "~")):
        raise BaseError(f"base {spelling}: no such folder")
    name = same[0] if same else spelling
    return Base(
        name=name,
        folder=folder_at(name) if Path(name).is_absolute() else None,
        aliases=(*aliases, spelling),
    )


def wanted_base(base: Base) -> Wanted:
    weights = base.opened()
    config = weights.config if weights else None
    return Wanted(names=(base.name, *base.aliases), folder=base.folder, config=config)


def find_renamed(catalog: Catalog, base: Base) -> Base:
    """The base under the name that the catalog has of it, where the Hub renamed it. Costs a request
    for the base and for each family, and none where the catalog has it by its name."""
    families = catalog.bases()
    if base.folder is not None or base.name in families or not hub.is_repo_id(base.name):
        return base
    names = [name for name in families if hub.is_repo_id(name)]
    current = _current(base, base.name) if names else base.name
    for family in names:
        if base_key(family) == base_key(current) or _current(base, family) == current:
            return replace(base, name=family, aliases=(*base.aliases, base.name))
    return base


def _current(base: Base, name: str) -> str:
    try:
        return hub.describe(name, session=base.session).id
    except ModelError:
        return name
