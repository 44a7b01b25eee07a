"""A model's weight files: chosen by name, opened, shards as one; whether they are quantised.

Whatever is wrong with the files is a `ModelError` with its own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path
from typing import Protocol, TypeVar, cast, runtime_checkable

import torch

from ...errors import ModelError
from ...records import Verification
from ...results import count
from ..untrusted_text import name_some, shown
from .bin_file import BinFile
from .derived import is_eight_bit
from .files import (
    ByteSource,
    Checkpoint,
    Config,
    ModelFolder,
    RowBlock,
    SafetensorsFile,
    TensorFile,
    TensorRef,
    read_json,
)
from .gguf_file import GgufFile, under_usual_names
from .npz_file import NpzFile

_PACKED = "(I8|U8|I16|I32)"
_MARKS = {
    "bitsandbytes 4-bit": r"\.quant_state\.bitsandbytes__\w+ ",
    "bitsandbytes 8-bit": r"\.SCB ",
    "GPTQ": rf"\.g_idx {_PACKED} ",
    "GPTQ or AWQ": rf"\.qweight {_PACKED} ",
    "compressed-tensors": rf"\.weight_packed {_PACKED} ",
    "MXFP4": "_blocks (U8|F4) ",
    "FP4 or FP6": " (F4|F6_E2M3|F6_E3M2) matrix$",
    "FP8": " F8_E(4M3|5M2)(FNUZ)? matrix$",
    "integers": rf"\.weight {_PACKED} matrix$",
}
"""By scheme, what marks it in the name, type and form of a tensor. A model bears several; the first
in this order names its scheme."""

_SPELLED_AS_DECLARED = (
    "aqlm auto-round autoround bitnet eetq exl2 exl3 finegrained_fp8 fouroversix fp_quant higgs "
    "hqq metal modelopt nvfp4 quanto quark sinq spqr torchao vptq"
)

_DECLARED = {name: name for name in _SPELLED_AS_DECLARED.split(" ")} | {
    "awq": "AWQ",
    "compressed-tensors": "compressed-tensors",
    "fbgemm_fp8": "FP8",
    "fp8": "FP8",
    "gptq": "GPTQ",
    "mxfp4": "MXFP4",
}
"""By `quant_method`; a reason shows no other value of it."""

_GGUF = re.compile(
    r"(?:[-_.]((?:i?q\d_|b?f\d|mxfp\d)\w*))?(?:-00001-of-(\d{5}))?\.gguf$", re.IGNORECASE
)
"""The form in its name, and of the first of several files their number."""

_GGUF_READ = ("F32", "BF16", "F16", "Q8_0")
"""Forms whose file is read, the best first."""

_GGUF_PART = re.compile(r"mmproj|-(?!00001)\d{5}-of-\d{5}", re.IGNORECASE)
"""A vision projector, or one of several files that is not the first."""

_GGUF_LATER = re.compile(r"-\d{5}-of-(?=\d{5}\.gguf$)", re.IGNORECASE)

_OTHER_WEIGHTS = re.compile(r"[^/]+\.safetensors|(pytorch|adapter)_model[^/]*\.bin")


def quantization(
    config: Config | None, tensors: Iterable[TensorRef], files: Iterable[str]
) -> str | None:
    """The scheme by which a model's weights are quantised; None where they are not. By its config
    first, then its tensors' names and types, then its files' names."""
    if declared := _declared_scheme(config):
        return declared
    kinds = {False: "vector", True: "matrix"}
    named = ((ref.name.replace(" ", "|"), ref) for ref in tensors)
    lines = [f"{name} {ref.dtype} {kinds[len(ref.shape) > 1]}" for name, ref in named]
    for scheme, mark in _MARKS.items():
        if any(map(re.compile(mark).search, lines)):
            return scheme
    names = list(files)
    if any(_OTHER_WEIGHTS.fullmatch(name) for name in names):
        return None
    forms = {match[1] or "" for name in names if (match := _GGUF.search(name))}
    if not forms or readable_gguf(names) is not None:
        return None
    return f"GGUF ({forms.pop().upper()})" if len(forms) == 1 and all(forms) else "GGUF"


def readable_gguf(names: Iterable[str]) -> str | None:
    """The `.gguf` at the top of a model's files that is read: of several by the form in its name,
    else the only one whose name has none, which is opened to see."""
    given = set(names)
    # what a model's only file is a later part of
    firsts = {_GGUF_LATER.sub("-00001-of-", name) for name in given}
    for whole in map(_whole_gguf, (given, firsts)):
        unnamed = whole.get("", [])
        chosen = next((whole[form][-1] for form in _GGUF_READ if form in whole), None)
        if chosen or len(unnamed) == 1:
            return chosen or unnamed[0]
    return None


def _whole_gguf(names: Iterable[str]) -> dict[str, list[str]]:
    """Whole models, or the first of their files, by the form in their name."""
    whole: dict[str, list[str]] = {}
    for name in sorted(names):
        if (match := _GGUF.search(name)) and "/" not in name and not _GGUF_PART.search(name):
            whole.setdefault((match[1] or "").upper(), []).append(name)
    return whole


def with_most_bits(files: ModelFiles, chosen: str | None, names: Iterable[str]) -> str | None:
    """The weight file that was chosen by name, but of a GGUF file and the only one whose name tells
    no form the one that has more bits by its header.

    Raises:
        ModelError: of the form that was chosen there are several GGUF files.
    """
    whole = _whole_gguf(names)
    equal = next((some for some in whole.values() if chosen in some), [])
    if len(equal) > 1:
        raise ModelError("ambiguous-weights", f"{name_some(equal)}: several GGUF files of one form")
    unnamed = whole.get("", [])
    if chosen is None or not chosen.endswith(".gguf") or len(unnamed) != 1 or chosen in unnamed:
        return chosen
    bits = {}
    for name in (chosen, *unnamed):
        with suppress(ModelError), closing(GgufFile(files.source(name))) as file:
            bits[name] = file.bits
    return max(bits, key=bits.__getitem__, default=chosen)


def _declared_scheme(config: Config | None) -> str | None:
    declared = (config or {}).get("quantization_config")
    if not isinstance(declared, Mapping) or not declared or is_eight_bit(declared):
        return None
    method = str(declared.get("quant_method") or "").lower()
    switches = [declared.get("load_in_4bit"), declared.get("load_in_8bit")]
    unknown = switches == [None, None]
    if method.startswith("bitsandbytes") or not (method or unknown):
        # Trainers leave the entry behind with both kinds switched off.
        return "bitsandbytes" if unknown or any(switches) else None
    return _DECLARED.get(method, "a quantisation that its config declares")


Item = TypeVar("Item")

_FULL = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""In the order in which transformers looks for them."""

ADAPTER_WEIGHTS = (
    "adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors", "adapters.npz"
)  # fmt: skip
"""In the order in which PEFT looks for them; the last two are mlx-lm's."""

USUAL_WEIGHTS = frozenset((*_FULL, *ADAPTER_WEIGHTS))

_FOREIGN_LORA = re.compile(
    r"(?!.*(merged|fused))([^/]*[_.-])?lora([_.-][^/]*)?\.(safetensors|npz|bin|pt)", re.IGNORECASE
)
"""Adapters of diffusers (`pytorch_lora_weights.safetensors`), of several ranks."""

_SHARD = re.compile(r"-\d{5}-of-(?!00001)\d{5}\.safetensors$")


@runtime_checkable
class ModelFiles(Protocol):
    """The files of one model by name: a folder, or a repository at one commit."""

    def has(self, file: str) -> bool: ...
    def content(self, file: str) -> bytes: ...
    def source(self, file: str) -> ByteSource: ...


def choose_weights(names: Collection[str], *, adapter: bool) -> str | None:
    """The weight file at the top of a model's files, or the index of its shards; None if unclear.
    safetensors before `.bin`, one file before shards; where a full checkpoint has none of the usual
    names, its only safetensors file, else its GGUF."""
    usual = next((name for name in (ADAPTER_WEIGHTS if adapter else _FULL) if name in names), None)
    if usual is not None or adapter:
        return usual
    others = _other_weights(name for name in names if "/" not in name)
    if not others:
        return readable_gguf(names)
    return others[0] if len(others) == 1 and not _SHARD.search(others[0]) else None


def is_adapter(names: Collection[str]) -> bool:
    """Whether the files at the top of a model are an adapter's: a whole checkpoint that has an
    adapter_config.json beside it, as trainers leave it, is none, nor one with its config.json and
    an adapter's weights without theirs."""
    configured = "adapter_config.json" in names
    if any(name in names for name in ADAPTER_WEIGHTS):
        return configured or "config.json" not in names or not any(n in names for n in _FULL)
    return configured and choose_weights(names, adapter=False) is None


def open_weights(files: ModelFiles, name: str) -> Checkpoint:
    """The checkpoint in a weight file, or in the shards that an index file names."""
    index = files.content(name) if name.endswith(".json") else b""
    weight_map = _weight_map(index, name) if index else {}
    names = shard_files(name, index)
    if missing := next((file for file in names if not files.has(file)), None):
        named = f"{name}: names {shown(missing)}, which" if missing != name else f"{name}: it"
        raise ModelError("missing-shard", f"{named} is not there; fetch it")
    with ExitStack() as opened:
        shards: dict[str, TensorFile] = {}
        for file in names:
            shards[file] = part = _open_file(files.source(file))
            opened.callback(part.close)
        checkpoint: Checkpoint = (first := shards[names[0]])
        if index or len(names) > 1:
            weight_map = weight_map or {t: file for file in names for t in shards[file].tensors}
            checkpoint = ShardedCheckpoint(shards, weight_map, len(index))
        if isinstance(first, GgufFile):
            _require_one_model({file: cast(GgufFile, part) for file, part in shards.items()})
            checkpoint = under_usual_names(checkpoint, first.settings)
        opened.pop_all()
    return checkpoint


def shard_files(name: str, index: bytes = b"") -> list[str]:
    """The files of a model: those that its index names, the parts of a GGUF model, or the one."""
    if index:
        return sorted(set(_weight_map(index, name).values()))
    match = _GGUF.search(name)
    n_parts = int(match[2] or 1) if match else 1
    return [name.replace("-00001-of-", f"-{part:05d}-of-") for part in range(1, n_parts + 1)]


def open_local(
    folder: Path, *, given: Path | None = None, whole: bool = False, often: bool = False
) -> Checkpoint:
    """The full checkpoint in a transformers folder, out of which no link leads, or out of `given`;
    `whole`: all bytes are to be read, so that what is listed of them can be compared; `often`: its
    tensors are, by many models."""
    files = ModelFolder.at(folder, given, whole=whole, often=often)
    names = files.names()
    name = with_most_bits(files, choose_weights(names, adapter=False), names)
    if name is None:
        others = _other_weights(names)
        if any(_SHARD.search(other) for other in others):
            line = f"{count(len(others), 'shard')}, but no model.safetensors.index.json; fetch it"
            raise ModelError("missing-shard", f"{folder.name}: {line}")
        what = count(len(others), "safetensors file") if others else "no weight file"
        raise ModelError("no-weights", f"{folder.name}: {what}; expected model.safetensors")
    return open_weights(files, name)


def open_adapter_weights(folder: Path, *, given: Path | None = None) -> Checkpoint:
    """The weights of a PEFT adapter folder; `given` as of `open_local`."""
    files = ModelFolder.at(folder, given, whole=True)
    name = choose_weights(files.names(), adapter=True)
    if name is None:
        raise ModelError("no-weights", f"{folder.name}: no {' or '.join(ADAPTER_WEIGHTS[:2])}")
    return open_weights(files, name)


def _require_one_model(parts: Mapping[str, GgufFile]) -> None:
    """Refuse files that a header counts as others than they are named, and parts of two models,
    where a setting that several have tells, or the tensors, each of which is in one part. A file
    that is no part may count none."""
    known: dict[str, list[object]] = {}
    for number, (file, part) in enumerate(parts.items()):
        counted = part.settings.get("split.count") or 1, part.settings.get("split.no", number)
        if counted != (len(parts), number):
            line = "its header counts it as another part of the model; fetch it again"
            raise ModelError("missing-shard", f"{file}: {line}")
        for name, value in part.settings.items():
            if name != "split.no" and value not in known.setdefault(name, [value]):
                line = f"its header and that of a part before it differ in {shown(name)}"
                raise ModelError("missing-shard", f"{file}: {line}; fetch the model again")
    names = [name for part in parts.values() for name in part.tensors]
    (wanted,) = known.get("split.tensors.count", [len(names)])
    if len(parts) > 1 and not len(set(names)) == len(names) == wanted:
        line = f"its parts have {count(len(names), 'tensor')}, {count(len(set(names)), 'name')}"
        line += f", of {shown(wanted)}"
        raise ModelError("missing-shard", f"{next(iter(parts))}: {line}; fetch the model again")


class ShardedCheckpoint:
    """Several files as one checkpoint, opened together so that every claim is checked."""

    def __init__(
        self, shards: Mapping[str, TensorFile], weight_map: Mapping[str, str], index_bytes: int
    ) -> None:
        for name, file in weight_map.items():
            if name not in shards[file].tensors:
                line = f"no tensor {shown(name)}, which the index places there"
                raise ModelError("missing-tensor", f"{file}: {line}")
        self._shards = shards
        self._file_of = weight_map
        self.tensors: Mapping[str, TensorRef] = {
            name: shards[file].tensors[name] for name, file in weight_map.items()
        }
        self.bytes_total = sum(shard.bytes_total for shard in shards.values())
        self.concurrent = all(shard.concurrent for shard in shards.values())
        self._index_bytes = 0 if self.concurrent else index_bytes

    @property
    def bytes_read(self) -> int:
        """Those of all files; the index counts where it was fetched."""
        return self._index_bytes + sum(shard.bytes_read for shard in self._shards.values())

    def read(self, name: str) -> torch.Tensor:
        return self._shards[self._file(name)].read(name)

    def view(self, name: str) -> AbstractContextManager[torch.Tensor]:
        return self._shards[self._file(name)].view(name)

    def stream(self, names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        for file, group in self._by_file((name, name) for name in names):
            yield from self._shards[file].stream(group)

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        for file, group in self._by_file((block.tensor, block) for block in blocks):
            yield from self._shards[file].stream_rows(group)

    def _by_file(self, items: Iterable[tuple[str, Item]]) -> list[tuple[str, list[Item]]]:
        """The second of each (tensor, item) by the tensor's file, files in order."""
        groups: dict[str, list[Item]] = {}
        for tensor, item in items:
            groups.setdefault(self._file(tensor), []).append(item)
        return sorted(groups.items())

    def verify(self) -> Verification | None:
        """The weakest of the shards'."""
        ways = {shard.verify() for shard in self._shards.values()}
        order: tuple[Verification | None, ...] = ("unverified", None, "crc", "sha256")
        return next(way for way in order if way in ways)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()

    def _file(self, name: str) -> str:
        file = self._file_of.get(name)
        if file is None:
            raise ModelError("missing-tensor", f"the index has no tensor {shown(name)}")
        return file


def _open_file(source: ByteSource) -> TensorFile:
    with ExitStack() as opened:
        opened.callback(source.close)
        forms: dict[str, Callable[[ByteSource], TensorFile]] = {
            "safetensors": SafetensorsFile, "npz": NpzFile, "gguf": GgufFile
        }  # fmt: skip
        file = forms.get(source.name.rpartition(".")[2], BinFile)(source)
        opened.pop_all()
    return file


def _other_weights(names: Iterable[str]) -> list[str]:
    files = (name for name in names if name.endswith(".safetensors"))
    return sorted(n for n in files if not n.startswith("adapter") and not is_foreign_lora(n))


def is_foreign_lora(name: str) -> bool:
    """Whether a file is by its name an adapter in a form other than PEFT's."""
    return _FOREIGN_LORA.fullmatch(name) is not None


def foreign_lora(name: str) -> ModelError:
    if name.rpartition("/")[2].startswith("pytorch_lora_weights"):
        line = "a LoRA of a diffusion pipeline (diffusers), not of a language model"
    elif name.endswith(".npz"):
        line = "not the name of MLX's adapters; if it is one, rename it to adapters.npz"
    else:
        line = "an adapter in a form other than PEFT's; save it as adapter_model.safetensors"
    return ModelError("unsupported-adapter", f"{name}: {line}")


_DIFFUSION = re.compile(
    r"(lora_unet_|lora_te\d?_|lora_transformer_|lycoris_unet_|unet\.|text_encoder(_2)?\.|transformer\.)"
)


def refuse_diffusion(checkpoint: Checkpoint) -> None:
    """Refuse, as `unsupported-adapter`, the LoRA of a diffusion model under any file name: every
    tensor is a factor below a part of a pipeline."""
    names = checkpoint.tensors
    if names and all(_DIFFUSION.match(name) and _LORA_PART.search(name) for name in names):
        form = "kohya" if any(name.startswith("lora_") for name in names) else "diffusers"
        line = f"a LoRA of a diffusion model (names of {form}), not of a language model"
        raise ModelError("unsupported-adapter", f"{next(iter(names.values())).file}: {line}")


_LORA_PART = re.compile(r"lora_(A|B|up|down)\b|lora\.(up|down)|\.alpha$|hada_|lokr_|dora_scale")


def _weight_map(index: bytes, name: str) -> dict[str, str]:
    weight_map = read_json(index, name=name).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError("bad-config", f"{name}: no weight_map")
    for file in weight_map.values():
        is_weights = isinstance(file, str) and file.endswith((".safetensors", ".bin"))
        if not is_weights or not file.isprintable() or {"/", "\\"} & set(file):
            line = "weight_map names something that is not a weight file beside it"
            raise ModelError("bad-config", f"{name}: {line}")
    return dict(weight_map)
