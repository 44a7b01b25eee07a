"""Bytes to tensors: headers parsed and checked, tensors read one at a time."""

from .base import Checkpoint, RowBlock, TensorRef
from .config_file import read_json, read_start
from .local import disagreement, open_adapter_weights, open_local
from .pickled import open_bin_bytes
from .quantized import quantization
from .safetensors_header import decode, header_length, parse_header, shown
from .signature import file_sha256, signature

__all__ = [
    "Checkpoint",
    "RowBlock",
    "TensorRef",
    "decode",
    "disagreement",
    "file_sha256",
    "header_length",
    "open_adapter_weights",
    "open_bin_bytes",
    "open_local",
    "parse_header",
    "quantization",
    "read_json",
    "read_start",
    "shown",
    "signature",
]
