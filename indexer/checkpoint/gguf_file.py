"""A full checkpoint in GGUF, llama.cpp's format, under the names that transformers gives it.

Float types and Q8_0 are read; what is stored in other types is refused by their name.
Layout: ggml's docs/gguf.md; names and turned rows: llama.cpp's convert_hf_to_gguf.py.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from ...errors import ModelError
from ...results import count
from ..untrusted_text import shown
from .derived import Derived, DerivedCheckpoint, turned
from .files import (
    LFS_POINTER,
    MAX_DIMS,
    Buffer,
    ByteSource,
    Checkpoint,
    TensorFile,
    TensorRef,
    count_elements,
    decode,
)

MAX_HEADER = 64 << 20
"""Bytes before the tensors; the vocabulary of 256,000 tokens takes some 15 MB."""

PIECE = 1 << 20
"""Bytes of one read of the header, of which a vocabulary is the most."""

MAX_ENTRIES = 1 << 17
"""Settings, and tensors."""

MAX_TEXTS = 1 << 21
"""Of one list; a vocabulary has some 500,000 merges."""

MAX_ALIGNMENT = 1 << 20

_NUMBERS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
_TEXT, _ARRAY = 8, 9
"""Types of settings."""

_READ = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 8: ("Q8_0", 32, 34), 28: ("F64", 1, 8), 30: ("BF16", 1, 2)
}  # fmt: skip
"""Types that are read, with the values and bytes of a block."""

_OTHERS = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip

_DECODER = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "blk": "model.layers",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
_GEMMA = {name: new for name, new in _DECODER.items() if "norm" not in name}
"""Their norms are stored with one added, and have other names."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "phi3": _DECODER | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    "bert": {
        "token_embd": "embeddings.word_embeddings", "token_embd_norm": "embeddings.LayerNorm",
        "token_types": "embeddings.token_type_embeddings", "blk": "encoder.layer",
        "attn_q": "attention.self.query", "attn_k": "attention.self.key",
        "attn_v": "attention.self.value", "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
    },
    "gpt2": {
        "token_embd": "transformer.wte", "position_embd": "transformer.wpe",
        "output_norm": "transformer.ln_f", "output": "lm_head",
        "blk": "transformer.h", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
        "attn_norm": "ln_1", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj", "ffn_norm": "ln_2",
    },
}  # fmt: skip
"""By `general.architecture`, transformers' name of each of llama.cpp's parts of a name."""

_PARTS = re.compile(r"(?:blk\.(?P<layer>\d{1,5})\.)?(?P<part>\w+)\.(?P<kind>weight|bias)")


@dataclass(slots=True)
class _Header:
    """The header of a file, read piece by piece; `at`: the next byte."""

    source: ByteSource
    at: int = 0
    _piece: bytes = b""
    _start: int = 0

    def skip(self, n_bytes: int) -> int:
        """The place of the next `n_bytes`, which lie in the header."""
        start, self.at = self.at, self.at + n_bytes
        if self.at > min(self.source.size, MAX_HEADER):
            code, line = "truncated", "the file ends within its header; fetch it again"
            if self.source.size > MAX_HEADER:
                code, line = "bad-header", f"a header of more than {MAX_HEADER} bytes"
            raise ModelError(code, f"{self.source.name}: {line}")
        return start

    def take(self, n_bytes: int) -> bytes:
        start = self.skip(n_bytes)
        if self.at > self._start + len(self._piece):
            stop = min(self.source.size, max(self.at, start + PIECE))
            self._piece, self._start = bytes(self.source.read(start, stop)), start
        return self._piece[start - self._start : self.at - self._start]

    def number(self, form: str) -> int | float:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))
        return value  # type: ignore[no-any-return]

    def count(self, form: str = "Q") -> int:
        return int(self.number(form))

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "replace")

    def value(self, kind: int) -> object:
        """A setting's value; None of a list, which is passed by."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise self.bad("a setting of an unknown type")
        kind, n_values = self.count("I"), self.count()
        if kind in _NUMBERS:
            self.skip(n_values * struct.calcsize(_NUMBERS[kind]))
        elif kind == _TEXT and n_values <= MAX_TEXTS:
            for _ in range(n_values):
                self.skip(self.count())
        else:
            raise self.bad("a list of an unknown type, or too long")
        return None

    def bad(self, line: str) -> ModelError:
        return ModelError("bad-header", f"{self.source.name}: {line}")

    def counts(self) -> tuple[int, int]:
        """How many tensors and settings follow."""
        magic, version = self.take(8)[:4], struct.unpack("<I", self._piece[4:8])[0]
        if magic != b"GGUF":
            if magic == LFS_POINTER[:4]:
                raise self.bad("a Git LFS pointer, not the weights; run `git lfs pull`")
            raise self.bad("not a GGUF file")
        if version not in (2, 3):
            raise self.bad("a version of GGUF other than 2 and 3, or of another byte order")
        n_tensors, n_settings = self.count(), self.count()
        if max(n_tensors, n_settings) > MAX_ENTRIES:
            raise self.bad(f"more than {MAX_ENTRIES} tensors or settings")
        return n_tensors, n_settings


class GgufFile(TensorFile):
    """One GGUF file under its own names; tensors of Q8_0 are read as float32."""

    def __init__(self, source: ByteSource) -> None:
        header = _Header(source)
        n_tensors, n_settings = header.counts()
        self.settings: dict[str, object] = {}
        for _ in range(n_settings):
            name, kind = header.text(), header.count("I")
            value = header.value(kind)
            if value is not None and not name.startswith("tokenizer."):
                self.settings[name] = value
        listed = [_listed(header) for _ in range(n_tensors)]
        alignment = self.settings.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT:
            raise header.bad("an alignment that is none")
        start = -(-header.at // alignment) * alignment
        refs = [_ref(source, start, *entry) for entry in listed]
        refs.sort(key=lambda ref: (ref.start, ref.stop))
        if len({ref.name for ref in refs}) < len(refs):
            line = "duplicate tensor name in the header"
            raise ModelError("duplicate-tensor", f"{source.name}: {line}")
        if any(ref.start < before.stop for before, ref in pairwise(refs)):
            raise ModelError("bad-offsets", f"{source.name}: two tensors overlap")
        super().__init__(source, refs, header.at)

    @property
    def bits(self) -> float:
        """Of a value of its matrices, none of one whose type is not read."""
        matrices = [ref for ref in self.tensors.values() if len(ref.shape) > 1]
        n_values = sum(count_elements(ref.shape) or 0 for ref in matrices)
        return 8 * sum(ref.stop - ref.start for ref in matrices) / max(1, n_values)

    def _decode(self, buffer: Buffer, ref: TensorRef) -> torch.Tensor:
        if ref.dtype != "Q8_0":
            return decode(buffer, ref)
        bits = replace(ref, dtype="U8", shape=(-1, 34))
        blocks = decode(buffer, bits) if len(buffer) else torch.empty(0, 34, dtype=torch.uint8)
        scales = blocks[:, :2].contiguous().view(torch.float16).float()
        return (blocks[:, 2:].view(torch.int8) * scales).view(ref.shape)


def _listed(header: _Header) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor."""
    name, n_dims = header.text(), header.count("I")
    if n_dims > MAX_DIMS:
        raise header.bad("a tensor of too many dimensions")
    sizes = struct.unpack(f"<{n_dims}Q", header.take(8 * n_dims))
    return name, sizes[::-1], header.count("I"), header.count()


def _ref(
    source: ByteSource, start: int, name: str, shape: tuple[int, ...], kind: int, offset: int
) -> TensorRef:
    """The tensor as listed; of a type that is not read, without an end."""
    dtype, n_values, n_bytes = _READ.get(kind, (_OTHERS.get(kind, f"type {kind}"), 1, 0))
    n_elements = count_elements(shape)
    if n_elements is None or (shape and shape[-1] % n_values):
        line = f"tensor {shown(name)} has no shape that {dtype} can have"
        raise ModelError("bad-offsets", f"{source.name}: {line}")
    begin = start + offset
    end = begin + n_elements // n_values * n_bytes
    if end > source.size:
        line = f"its tensors do not end within its {source.size} bytes; fetch it again"
        raise ModelError("truncated", f"{source.name}: {line}")
    return TensorRef(name=name, dtype=dtype, shape=shape, file=source.name, start=begin, stop=end)


class GgufCheckpoint(DerivedCheckpoint):
    """A GGUF model under transformers' names; `heads`: query and key-value heads that its header
    counts, by which the rows of llama's queries and keys are put in order."""

    heads: tuple[object, object]


def under_usual_names(file: Checkpoint, settings: Mapping[str, object]) -> GgufCheckpoint:
    """The checkpoint under transformers' names, rows and columns as there; else `quantized`."""
    architecture, where = settings.get("general.architecture"), next(iter(file.tensors), "")
    what = f"{file.tensors[where].file}: " if where else ""
    if settings.get("general.type", "model") != "model":
        line = "a LoRA or another addition in GGUF; save the adapter in PEFT's form"
        raise ModelError("unsupported-adapter", f"{what}{line}")
    names = NAMES.get(str(architecture))
    if names is None:
        line = f"GGUF of the architecture {shown(str(architecture))}, whose names are not mapped"
        raise ModelError("quantized", f"{what}weights are stored as {line}")
    n_heads = settings.get(f"{architecture}.attention.head_count")
    heads = n_heads, settings.get(f"{architecture}.attention.head_count_kv", n_heads)
    kept: dict[str, str] = {}
    derived: dict[str, Derived] = {}
    types: Counter[str] = Counter()
    for name, ref in file.tensors.items():
        match = _PARTS.fullmatch(name)
        new = names.get(match["part"]) if match else None
        is_layer = match is not None and match["layer"] is not None and len(ref.shape) > 1
        if is_layer:
            types[ref.dtype] += 1
        if new is None or match is None:
            if is_layer:
                line = f"GGUF ({architecture}) with {shown(name)}, which is not mapped"
                raise ModelError("quantized", f"{what}weights are stored as {line}")
            continue
        new = f"{names['blk']}.{match['layer']}.{new}" if match["layer"] else new
        new = f"{new}.{match['kind']}"
        head = _head_size(heads, ref, match["part"], str(architecture))
        if found := _derived(ref, head, is_turned=architecture == "gpt2" and is_layer):
            derived[new] = found
        else:
            kept[new] = name
    unread = [dtype for dtype in types if dtype not in {read for read, *_ in _READ.values()}]
    if unread:
        line = f"weights are stored as GGUF ({max(unread, key=types.__getitem__)})"
        raise ModelError("quantized", f"{what}{line}")
    note = f"read from GGUF ({', '.join(sorted(types))})"
    if types["Q8_0"]:
        note = f"{count(types['Q8_0'], 'weight')} dequantised from GGUF (Q8_0)"
    model = GgufCheckpoint(file, kept, derived, note=note)
    model.heads = heads
    return model


def _head_size(counts: tuple[object, object], ref: TensorRef, part: str, architecture: str) -> int:
    """Rows of one head of a query or key whose rows llama.cpp has in pairs; 0 of any other."""
    if architecture != "llama" or part not in ("attn_q", "attn_k"):
        return 0
    heads = counts[part == "attn_k"]
    rows = ref.shape[0] if ref.shape else 1
    if type(heads) is not int or heads < 1 or rows % (2 * heads) or not rows:
        line = f"{ref.file}: its heads are not counted so that {shown(ref.name)} can be read"
        raise ModelError("bad-header", line)
    return rows // heads


def _derived(ref: TensorRef, head: int, *, is_turned: bool) -> Derived | None:
    """A tensor as transformers has it; None where it lies so in the file. `head`: rows of a head,
    whose two halves alternate there; `is_turned`: it is in × out, as GPT-2 has it."""

    def in_order(values: torch.Tensor, _: int) -> torch.Tensor:
        if not head:
            return values
        pairs = values.reshape(len(values) // head, head // 2, 2, *values.shape[1:])
        return pairs.transpose(1, 2).reshape(values.shape)

    if is_turned:
        derived = turned(ref)
    elif head or ref.dtype == "Q8_0":
        derived = Derived(
            of=ref.name, shape=ref.shape, compute=in_order, dtype=ref.dtype, together=head or 1
        )
    else:
        return None
    return replace(derived, dtype="F32", error=_q8_error) if ref.dtype == "Q8_0" else derived


def _q8_error(part: torch.Tensor) -> float:
    """|error| / |W|: half a step, uniform; a step is a 127th of the largest of 32 values."""
    size = part.float().square().mean().sqrt()
    blocks = part.float().flatten()[: part.numel() // 32 * 32].view(-1, 32)
    step = blocks.abs().amax(1).square().mean().sqrt() / 127 / 12**0.5
    return float(step / size) if size > 0 else 0.0
