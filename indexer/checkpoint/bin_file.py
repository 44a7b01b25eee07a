"""One torch archive (`.bin`): tensors only, never unpickled otherwise, read by position.

torch stores the elements uncompressed, so they can be read where they are. Where that is, torch
itself says: its weights-only reader reads the archive's own list from a small copy of the archive
in which every storage is empty; on the meta device it notes where a storage would begin, without
looking into it.
"""

from __future__ import annotations

import io
import pickle
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from ...errors import ModelError
from ...records import Verification
from ..untrusted_text import shown
from .bin_rows import StoredRows, local_rows, remote_rows, stored_rows
from .byte_source import Buffer, ByteSource
from .tensor_file import DTYPES, RowBlock, TensorFile, TensorRef
from .zip_entries import (
    LOCAL_HEADER,
    Entry,
    content_of,
    read_directory,
    require_checksum,
    small_entry,
)

_SPELLING = {dtype: name for name, dtype in DTYPES.items()} | {
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}

NESTED = ("state_dict", "model", "module")
"""Where trainers put the state dict among other things that they save."""

FREQUENT_MODULES = frozenset(
    [
        "accelerate",
        "datasets",
        "deepspeed",
        "lightning",
        "numpy",
        "peft",
        "pytorch_lightning",
        "sklearn",
        "tokenizers",
        "torch",
        "torchvision",
        "transformers",
        "trl",
    ]
)
"""Modules beside Python's own whose objects trainers leave in `.bin` files."""

MAX_NESTING = 3
"""Levels down to which a state dict is searched: `{"state_dict": {"model": {"module": …}}}`."""

MAX_LIST = 64 << 20
"""Bytes of the pickled list of tensors."""

MAX_MARK = 128 << 10
"""Bytes of the entry that holds a word on the byte order, with its name and padding."""

_ALLOCATES = b"\nbytearray\n"
"""The one name that torch's weights-only reader allows and that fills memory by a number."""


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor within its storage, in elements; no entry where it has none that is read."""

    tensor: torch.Tensor
    entry: Entry | None


class BinFile(TensorFile):
    """One `.bin` in torch's zip form.

    A TensorRef here has no place in the file: start is 0, stop its own size in bytes. Peak: two
    tensors where one lies unaligned in the file and is read into memory of its own.
    """

    def __init__(self, source: ByteSource) -> None:
        entries = read_directory(source)
        prefix = _prefix(source.name, entries)
        order = entries.get(f"{prefix}byteorder")
        mark = b"little" if order is None else small_entry(source, order, MAX_MARK)
        self._swapped = mark.strip() == b"big"
        tensors, entry_at = _list_tensors(source, entries, prefix)
        self._views = {name: _view(tensor, entry_at) for name, tensor in tensors.items()}
        plain = [v.entry for v in self._views.values() if v.tensor.layout is torch.strided]
        if entry_at and plain and not any(plain):
            line = "this torch does not say where its tensors are; update torch, 2.7 does"
            raise ModelError("legacy-pickle", f"{source.name}: {line}")
        refs = [_tensor_ref(name, view, source.name) for name, view in self._views.items()]
        self._checked: set[int] = set()
        self._is_read_in_part = False
        used = [view.entry for view in self._views.values() if view.entry is not None]
        self._has_checksums = all(entry.crc for entry in used)
        stored = sum(entry.size for name, entry in entries.items() if "/data/" in name)
        super().__init__(source, refs, max(0, source.size - stored))

    def read(self, name: str) -> torch.Tensor:
        """One tensor in its stored dtype, contiguous.

        Of a storage that many share only its own part takes memory, where the file is mapped.
        """
        ref = self._ref(name)
        start, stop = self._extent(ref)
        if not self.concurrent or 2 * (ref.stop - ref.start) >= stop - start:
            return super().read(name)
        with self.view(name) as tensor:
            return tensor.clone()

    def stream_rows(self, blocks: Iterable[RowBlock]) -> Iterator[tuple[RowBlock, torch.Tensor]]:
        """The rows by offset, without what lies between them; of a file that is read whole, and
        of tensors whose rows are not one after the other, cut from whole tensors.

        The order is the same either way.
        """
        blocks = list(dict.fromkeys(blocks))
        places = {block: self._stored_rows(block) for block in blocks}
        in_place: list[StoredRows] = []
        if not self._source.plan.whole:
            in_place = [rows for rows in places.values() if rows is not None]
        self._is_read_in_part |= bool(in_place)
        read = local_rows if self.concurrent else remote_rows
        arriving = read(self._source, in_place, swapped=self._swapped)
        cut_from: tuple[str, torch.Tensor] | None = None
        for block in sorted(blocks, key=lambda block: self._row_order(block, places[block])):
            if in_place and places[block] is not None:
                rows, tensor = next(arriving)
                self._count(rows.stop - rows.start)
                yield rows.block, tensor
                continue
            if cut_from is None or cut_from[0] != block.tensor:
                cut_from = block.tensor, self.read(block.tensor).flatten(0, -2)
            yield block, cut_from[1][block.start : block.stop].clone()

    def verify(self) -> Verification | None:
        """`crc` where no SHA-256 was compared: every entry that was read had its own.

        `unverified` where of some entries only rows were read, which have none.
        """
        way = super().verify()
        if self._is_read_in_part and self._has_checksums:
            return "unverified"
        return "crc" if way != "sha256" and self._has_checksums else way

    def _extent(self, ref: TensorRef) -> tuple[int, int]:
        entry = self._views[ref.name].entry
        return (entry.begin, entry.end) if entry is not None else (0, 0)

    def _stored_rows(self, block: RowBlock) -> StoredRows | None:
        """Where a block's rows are, if that is one place."""
        ref = self._ref(block.tensor)
        view = self._views[ref.name]
        if ref.dtype not in DTYPES or view.entry is None:
            return None
        return stored_rows(block, ref, view.tensor, view.entry)

    def _row_order(self, block: RowBlock, rows: StoredRows | None) -> tuple[object, ...]:
        if rows is not None:
            return rows.order
        return self._extent(self._ref(block.tensor))[0], 0, 0, block.tensor, block.start

    def _decode(self, buffer: Buffer, ref: TensorRef) -> torch.Tensor:
        tensor, entry = self._views[ref.name].tensor, self._views[ref.name].entry
        if ref.dtype not in DTYPES or entry is None:
            line = f"tensor {shown(ref.name)} is {ref.dtype}, which is not read"
            raise ModelError("unsupported-dtype", f"{ref.file}: {line}")
        if ref.stop > entry.size:
            line = f"tensor {shown(ref.name)} repeats {entry.size} stored bytes over {ref.stop}"
            raise ModelError("bad-offsets", f"{ref.file}: {line}")
        if not ref.stop:
            return torch.empty(ref.shape, dtype=tensor.dtype)
        content = content_of(buffer, entry, ref.file)
        # of a file at hand once: many tensors may share a large storage
        if not self.concurrent or entry.begin not in self._checked:
            require_checksum(content, entry, ref.file, f"tensor {shown(ref.name)}")
            self._checked.add(entry.begin)
        width = tensor.dtype.itemsize
        stored = torch.frombuffer(content, dtype=torch.uint8, count=entry.size // width * width)
        if self._swapped:
            stored = stored.reshape(-1, width).flip(1).reshape(-1)
        elif stored.data_ptr() % width:
            stored = stored.clone()
        elements = stored.view(tensor.dtype)
        return elements.as_strided(
            tensor.shape, tensor.stride(), tensor.storage_offset()
        ).contiguous()


def _prefix(file: str, entries: Iterable[str]) -> str:
    """What the names of all entries that torch reads begin with."""
    for name in entries:
        if name.endswith("/data.pkl"):
            return name.removesuffix("data.pkl")
    raise ModelError("truncated", f"{file}: the archive is damaged: it has no list of tensors")


def _list_tensors(
    source: ByteSource, entries: Mapping[str, Entry], prefix: str
) -> tuple[dict[str, torch.Tensor], dict[int, Entry]]:
    """The tensors on the meta device, and each storage's entry by the place torch notes."""
    name, entry = source.name, entries[f"{prefix}data.pkl"]
    pickled = small_entry(source, entry, MAX_LIST)
    if _ALLOCATES in pickled:
        raise ModelError("unsafe-pickle", f"{name}: holds more than tensors: 'bytearray'")
    try:
        skeleton, entry_at = _skeleton(pickled, entries, prefix)
        with places_noted():
            state = torch.load(skeleton, map_location="meta", weights_only=True, mmap=False)
        tensors = _named_tensors(state)
    except pickle.UnpicklingError as err:
        raise ModelError("unsafe-pickle", f"{name}: {_offence(str(err))}") from err
    except NotImplementedError as err:
        line = "holds tensors of a kind that torch cannot list unread, as quantised ones"
        raise ModelError("unsupported-dtype", f"{name}: {line}") from err
    except RuntimeError as err:
        raise ModelError("truncated", f"{name}: the archive is damaged") from err
    # A damaged pickle can make torch's restricted reader fail in any way.
    except Exception as err:
        line = f"its list of tensors is damaged ({type(err).__name__})"
        raise ModelError("unsafe-pickle", f"{name}: {line}") from err
    if not tensors:
        raise ModelError("no-weights", f"{name}: no tensors by name; expected a state dict")
    return tensors, entry_at


def _skeleton(
    pickled: bytes, entries: Mapping[str, Entry], prefix: str
) -> tuple[io.BytesIO, dict[int, Entry]]:
    """The archive with empty storages, and each storage's entry by where it would begin."""
    file = io.BytesIO()
    storages = [name for name in entries if name.startswith(f"{prefix}data/")]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as copy:
        copy.writestr(f"{prefix}data.pkl", pickled)
        copy.writestr(f"{prefix}version", b"3\n")
        for name in storages:
            copy.writestr(name, b"")
        entry_at = {
            copy.getinfo(name).header_offset + LOCAL_HEADER + len(name.encode()): entries[name]
            for name in storages
        }
    file.seek(0)
    return file, entry_at


def places_noted() -> AbstractContextManager[object]:
    """Where torch notes a storage's place: on the meta device, older ones in fake mode only."""
    if hasattr(torch.serialization, "_is_meta_location"):
        return nullcontext()
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def _named_tensors(state: object, levels: int = MAX_NESTING) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, without gradients: nested ones first, as the rest beside a
    nested state dict belongs to the training."""
    if not isinstance(state, dict):
        return {}
    for key in NESTED if levels else ():
        if tensors := _named_tensors(state.get(key), levels - 1):
            return tensors
    return {
        name: value.detach()
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, torch.Tensor)
    }


def _offence(message: str) -> str:
    """What torch's weights-only reader refused, from its long message, as far as it is known."""
    match = re.search(r"GLOBAL ([\w.]+)", message)
    if match is None:
        return "torch's weights-only reader refuses it; save it as safetensors"
    return f"holds more than tensors: {_known_name(match[1])}"


def _known_name(name: str) -> str:
    """A name that a file gives an object, if there is such an object; else its module, if that is
    one that everybody knows. Nothing is imported."""
    place, _, attribute = name.rpartition(".")
    loaded = sys.modules.get(place or "builtins")
    if loaded is not None and attribute in vars(loaded):
        return name
    root = name.partition(".")[0]
    is_known = root in sys.stdlib_module_names or root in FREQUENT_MODULES
    return f"an object of {root}" if is_known else "an object of an unknown module"


def _view(tensor: torch.Tensor, entry_at: Mapping[int, Entry]) -> _View:
    if tensor.layout is not torch.strided:
        return _View(tensor, None)
    place = getattr(tensor.untyped_storage(), "_checkpoint_offset", None)
    return _View(tensor, entry_at.get(place) if place is not None else None)


def _tensor_ref(name: str, view: _View, file: str) -> TensorRef:
    tensor = view.tensor
    if tensor.layout is not torch.strided:
        dtype = str(tensor.layout)
    elif view.entry is None:
        dtype = "meta"
    elif tensor.is_neg():
        dtype = "a negated view"
    else:
        dtype = _SPELLING.get(tensor.dtype, str(tensor.dtype))
    if view.entry is not None and tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in steps)
        if (last + 1) * tensor.itemsize > view.entry.size:
            line = "the archive is damaged: a tensor lies outside its storage"
            raise ModelError("truncated", f"{file}: {line}")
    return TensorRef(
        name=name,
        dtype=dtype,
        shape=tuple(tensor.shape),
        file=file,
        start=0,
        stop=tensor.numel() * tensor.itemsize,
    )
