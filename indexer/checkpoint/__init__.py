"""Bytes to tensors: headers parsed and checked, tensors read one at a time."""

from .bin_file import open_bin_bytes
from .byte_source import (
    ALL_TENSORS,
    FEW_BYTES,
    WHOLE_TENSORS,
    ByteSource,
    LocalFile,
    ReadPlan,
)
from .local_files import Config, file_sha256, read_json, read_start, signature
from .quantized import quantization
from .safetensors_file import decode, header_length, parse_header
from .tensor_file import Checkpoint, RowBlock, TensorRef
from .weights import (
    ADAPTER_FILES,
    choose_weights,
    disagreement,
    open_adapter_weights,
    open_local,
    open_weights,
    shard_files,
)

__all__ = [
    "ADAPTER_FILES",
    "ALL_TENSORS",
    "FEW_BYTES",
    "WHOLE_TENSORS",
    "ByteSource",
    "Checkpoint",
    "Config",
    "LocalFile",
    "ReadPlan",
    "RowBlock",
    "TensorRef",
    "choose_weights",
    "decode",
    "disagreement",
    "file_sha256",
    "header_length",
    "open_adapter_weights",
    "open_bin_bytes",
    "open_local",
    "open_weights",
    "parse_header",
    "quantization",
    "read_json",
    "read_start",
    "shard_files",
    "signature",
]
