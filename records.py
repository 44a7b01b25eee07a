"""Frozen records that cross folders: slots, recipes, fingerprints, models, outcomes."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .arrays import Float32, Float64, UInt8, UInt32
from .errors import REASONS, Status

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    import numpy as np  # for annotations alone

Exclude = Literal["author", "run"]
Layout = Literal["auto", "pca", "tsne", "umap"]
Colour = Literal["dataset", "author", "kind"]
Exclusion = Literal["adapters", "bin", "full", "gguf", "merges", "quantized"]
FindingKind = Literal[
    "duplicate",
    "near-duplicate",
    "base-copy",
    "frozen",
    "edit",
    "rounding",
    "outlier",
    "licence",
    "card-base",
    "card-dataset",
]
"""Choices of questions: candidates that are left out, how a map is placed, what colours it, members
that are not indexed, what an audit looks for."""

STACKS: tuple[str, ...] = ("encoder", "decoder", "text", "vision")

ROLES = (
    *("q", "k", "v", "qkv", "o", "cross_q", "cross_k", "cross_v", "cross_o"),
    *("up", "gate", "down"),
)
"""Roles with a field's name, in printing order. `qkv` is a fused matrix whose heads are not known.
A matrix without one has its name inside the block for a role: `linear_attn.in_proj_qkvz`."""

STACK_NAME = re.compile(r"[A-Za-z0-9_/-]{1,80}")
ROLE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,160}")


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One weight-matrix position. Experts of a mixture are parts of one slot. `stack`: of `STACKS`,
    or the name of a tower or stage of its own; `role`: of `ROLES`, or a name inside the block."""

    stack: str
    layer: int
    role: str

    def __post_init__(self) -> None:
        if not (STACK_NAME.fullmatch(self.stack) and ROLE_NAME.fullmatch(self.role)):
            raise ValueError(f"not a slot: {self.stack}.{self.layer}.{self.role}")

    @classmethod
    def parse(cls, name: str) -> Slot:
        """The slot of that name; ValueError where it is none."""
        stack, layer, role = name.split(".", 2)
        return cls(stack, int(layer), role)

    def __str__(self) -> str:
        return f"{self.stack}.{self.layer}.{self.role}"


def stack_order(stack: str) -> tuple[int, str]:
    """Sorts stacks as data flows through them, those without a field's name behind."""
    return (STACKS.index(stack) if stack in STACKS else len(STACKS)), stack


def role_order(role: str) -> tuple[int, str]:
    """Sorts roles in the order of `ROLES`, those without a field's name behind."""
    return (ROLES.index(role) if role in ROLES else len(ROLES)), role


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a fingerprint is made. Two recipes with one id give comparable vectors.

    Attributes:
        rank: Factors per slot.
        dim: Length of the searched vector; 0 where the family's shapes decide it.
        seed: Seed of every random feature and of the randomised SVD.
        version: Raised whenever the numbers would change.
        params: Further settings, sorted, part of the identity.
    """

    name: str
    rank: int
    dim: int
    seed: int = 0
    version: int = 1
    params: tuple[tuple[str, str], ...] = ()

    @property
    def share(self) -> float:
        """Share of every matrix that is read for it, 0…1; 1 without a budget."""
        return float(dict(self.params).get("rows", "100%").rstrip("%")) / 100

    @property
    def has_linear_sketch(self) -> bool:
        """Whether a model has a `LinearSketch` beside its vector."""
        return self.name == "sketch"

    @property
    def id(self) -> str:
        """`name-xxxxxxxx`: a hash over everything that changes the numbers."""
        return _recipe_id(self)


@functools.lru_cache(maxsize=256)
def _recipe_id(recipe: Recipe) -> str:
    body = json.dumps(
        [recipe.name, recipe.rank, recipe.dim, recipe.seed, recipe.version, sorted(recipe.params)]
    )
    return f"{recipe.name}-{hashlib.sha256(body.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The fingerprint vector of one model under one recipe.

    Attributes:
        vector: Unit length.
        norm: Length before normalisation.
    """

    recipe: Recipe
    vector: Float32[np.ndarray, " dim"] = field(compare=False)
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStats:
    """Statistics of one slot's update.

    Attributes:
        shape: (out, in) of the matrix; summed over parts along out for mixtures.
        fro_norm: |ΔW|, Frobenius.
        relative_norm: |ΔW| / |W|; None where W was not read.
        sigma: Kept singular values, descending.
        energy: Share of |ΔW|² in `sigma`, 0…1.
        stable_rank: |ΔW|² / σ₁².
        noise_floor: Estimated Frobenius norm of the storage rounding inside ΔW.
        sketch: Features of the update under the recipe, as codes (`store/sketch_codes.py`); empty
            without.
        zero_share: Share of ΔW's entries that are exactly 0, 0…1, of the rows that were read. Of a
            low-rank update, those in a row or column that the factors leave at 0; None where it was
            not counted.
    """

    slot: Slot
    shape: tuple[int, int]
    fro_norm: float
    relative_norm: float | None
    sigma: Float32[np.ndarray, " rank"] = field(compare=False)
    energy: float
    stable_rank: float
    noise_floor: float
    sketch: bytes = field(compare=False)
    zero_share: float | None = None


LONGEST_TEXT = 4096
"""Characters of an id, a base's name, a licence, a task; what is longer is none."""


def storable(name: str) -> str:
    """The name as Unicode text: what is none in a file's name is spelled out (`\\udce9`)."""
    return name.encode("utf-8", "backslashreplace").decode()


LINEAR_DIM, LINEAR_LAYER_DIM = 1024, 256
"""Numbers of a linear sketch: over every slot, and of each layer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearSketch:
    """A CountSketch of all of a model's ΔW: linear in ΔW, and not normalised.

    Inner products of the sketches of two models estimate ⟨ΔW, ΔW'⟩ without bias, and the sketch of
    a sum is the sum of the sketches. Comparable under one recipe and base.

    Attributes:
        recipe: The id of the recipe that gives the seed and the rows.
        pooled: Sketch over every slot: `LINEAR_DIM` numbers.
        layers: Sketches by stack and layer: `LINEAR_LAYER_DIM` numbers each.
    """

    recipe: str
    pooled: Float32[np.ndarray, " 1024"]
    layers: Mapping[tuple[str, int], Float32[np.ndarray, " 256"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSpectrum:
    """Every singular value of one matrix: of an update, or of the weights themselves.

    Attributes:
        part: The expert, where a slot holds several; else empty.
        shape: (out, in).
        energies: σ², descending: all of a dense matrix, an adapter's r, none of an exact zero.
        noise_energy: Expected |storage rounding|², Frobenius, of everything subtracted.
        known_rank: Rank of an adapter; None for dense updates.
    """

    slot: Slot
    part: str
    shape: tuple[int, int]
    energies: Float64[np.ndarray, " sigma"] = field(compare=False)
    noise_energy: float
    known_rank: int | None


GATED_NOTE, PRIVATE_NOTE = "gated on the Hub", "private on the Hub"
"""Notes of models that not everybody may read: they are not published unasked."""

NOT_OF_WEIGHTS = (GATED_NOTE, PRIVATE_NOTE, "its card names ", "its files name ", "names no base")
"""Beginnings of notes that tell nothing of the weights."""

Verification = Literal["sha256", "crc", "unverified"]
"""How bytes were compared with what is listed of them: `ModelRecord.verified`."""


PARTLY_READ = "rests on "
"""How the note of a model begins of which some layer matrices were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """What is known of a model without its weights.

    Attributes:
        id: Hub id, or path relative to the indexed folder. Unique within a base.
        base: Canonical name of the family's base.
        base_raw: The base as the model itself names it.
        revision: Commit sha for the Hub.
        signature: Changes when the files change; equal means nothing to read again.
        content_sha256: Hash of the weight files, where it is known without extra reading.
        kind: `full`, `adapter`.
        method: `full`, `lora`, `dora`, `loha`, …; of a refused adapter as its config says, or None.
        source: Absolute folder, `hub`, or `upload` of what a service was sent.
        run: Checkpoints of one training run share it.
        dataset: Normalised label; None = unlabelled.
        dataset_raw: The label as its source spells it; a card's collection without a part too.
        label_source: `labels`, `tags`, `card`, `model-index`, `sentence`, `name`.
        bytes_total: Size of the weight files, in bytes.
        notes: Sentences about irregularities of the files.
        duplicate_of: The oldest indexed model of the family with the same weight files.
        verified: `sha256`: every byte of the weight files was compared with the SHA-256 that is
            listed for them; `crc`: every byte that was used, with a `.bin` archive's own CRCs;
            `unverified`: something is listed, and was not compared; None where nothing is listed.
        layers: Of a full checkpoint, over all stacks.
        vocabulary: Rows of its token embeddings.
        dtype: The type that most of its layer matrices are stored in, as safetensors spells it.
    """

    id: str
    base: str
    base_raw: str | None = None
    revision: str | None = None
    signature: str = ""
    content_sha256: str | None = None
    kind: str = "full"
    method: str | None = "full"
    source: str = ""
    author: str | None = None
    run: str | None = None
    dataset: str | None = None
    dataset_raw: str | None = None
    label_source: str | None = None
    task: str | None = None
    license: str | None = None
    downloads: int | None = None
    created_at: str | None = None
    bytes_total: int = 0
    notes: tuple[str, ...] = ()
    duplicate_of: str | None = None
    verified: Verification | None = None
    layers: int | None = None
    vocabulary: int | None = None
    dtype: str | None = None

    @property
    def place(self) -> str:
        """`source`, its folder as the system spells it where its name is no Unicode text."""
        return re.sub(
            r"\\(udc[89a-f][0-9a-f])", lambda name: chr(int(name[1][1:], 16)), self.source
        )

    @property
    def partly_read(self) -> str | None:
        """The note that some of its layer matrices were not read, and may differ from the base's;
        None where what is known of it rests on all of them."""
        return next((note for note in self.notes if note.startswith(PARTLY_READ)), None)

    def as_copy_of(self, twin: ModelRecord) -> ModelRecord:
        """The record, with what reading the same weight files told of the twin."""
        read = ("method", "bytes_total", "verified", "layers", "vocabulary", "dtype")
        notes = (note for note in twin.notes if not note.startswith(NOT_OF_WEIGHTS))
        values = {name: getattr(twin, name) for name in read}
        return replace(self, notes=(*self.notes, *notes), **values)


FootprintKind = Literal["exact", "tied", "frozen", "dense", "none"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprint:
    """Which tokens of the vocabulary occurred in a model's training, by its input embedding.

    Attributes:
        kind: `exact`: rows of tokens that never occurred stand still. `tied`: the embedding is a
            language head too, every row moved, and `tokens` are those that occurred for sure.
            `frozen`: no row moved. `dense`: every row moved, and nothing tells which occurred.
            `none`: no input embedding was read, for the reason in `note`.
        vocabulary: Rows that the base's embedding and the model's both have.
        tokens: Numbers of the touched rows, rising.
        strengths: Of each, how far it moved, in quarters of an octave (`indexer/footprint.py`).
        share: Of the rows, of how many it is known whether they moved in training, 0…1.
        tokenizer: Hash of the model's own tokenizer; None for the base's.
        own_tokenizer: That tokenizer, as `store/tables/footprints.py` keeps it; empty once it is
            stored.
        note: What could not be read, or was added; one line.
        lexicon: Hash of the words that `responses` are of; None where there are none.
        responses: Of each word a signed byte: how strongly the update answers to it
            (`indexer/lexicon.py`).
    """

    kind: FootprintKind
    vocabulary: int = 0
    tokens: UInt32[np.ndarray, " touched"]
    strengths: UInt8[np.ndarray, " touched"]
    share: float = 1.0
    tokenizer: str | None = None
    own_tokenizer: bytes = field(default=b"", repr=False)
    note: str | None = None
    lexicon: str | None = None
    responses: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A model that was fingerprinted; `linear` is None under a recipe that keeps none, `footprint`
    where none was asked for."""

    model: ModelRecord
    fingerprints: tuple[Fingerprint, ...]
    slots: tuple[SlotStats, ...]
    bytes_read: int
    seconds: float
    linear: LinearSketch | None = field(default=None, compare=False)
    footprint: Footprint | None = field(default=None, compare=False)

    @property
    def status(self) -> Literal["indexed"]:
        return "indexed"


LossName = Literal["causal", "seq2seq", "masked", "classification", "regression", "contrastive"]
"""Losses whose gradient a data set gives."""

TOKEN_LOSSES: tuple[LossName, ...] = ("causal", "seq2seq", "masked")
LABELLED_LOSSES: tuple[LossName, ...] = ("classification", "regression")
"""Those that labels decide, by a head that is fitted on the data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A model that was not: why, as a code of `errors.REASONS` and one line. It may have a
    footprint, where its embedding is stored as it was trained and its layers are not."""

    model: ModelRecord
    code: str
    reason: str
    bytes_read: int = 0
    seconds: float = 0.0
    footprint: Footprint | None = field(default=None, compare=False)

    @property
    def status(self) -> Status:
        return REASONS[self.code].status


Outcome = Indexed | Refused


WHOLE, GROUP, PERMUTED = "whole", "group", "shuffled"
"""Names of the parts of a data set's sketches; of several of a kind each has its number behind."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """A data set as a query: the gradient of a base's loss over its examples, negated, as if it
    were a full fine-tune's ΔW; no text.

    Attributes:
        name: Unique within the base; empty until it is kept or compared, as are `base`, `sha256`
            and `settings`.
        base: Canonical name of the family's base.
        loss: One of `LossName`.
        sha256: Hash of the bytes of the file, or of all files of a folder.
        examples: Examples that have something to predict.
        settings: Everything that changes the numbers.
        counts: Rows read and skipped; `classes` of a classification, else 0; tokens or labels
            `predicted`, `tokens` read, and the `mean_loss` before any training.
        sketches: By part and slot, as a model's: `whole`, over all examples; `group N`, over
            disjoint groups of them; `shuffled N`, over all with their labels permuted.
    """

    name: str = ""
    base: str = ""
    loss: str
    sha256: str = ""
    examples: int
    settings: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[str, object]
    fingerprint: Fingerprint
    sketches: Mapping[str, Mapping[Slot, bytes]]

    @property
    def whole(self) -> Mapping[Slot, bytes]:
        """The sketches over all examples."""
        return self.sketches[WHOLE]

    def parts(self, kind: str) -> list[Mapping[Slot, bytes]]:
        """The sketches of every part of a kind: `GROUP` or `PERMUTED`."""
        return [self.sketches[name] for name in sorted(self.sketches) if name.split()[0] == kind]
