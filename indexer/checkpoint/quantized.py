"""Whether weights are stored quantised, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .local_files import Config
from .tensor_file import TensorRef


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """What identifies a scheme in one tensor.

    Attributes:
        name: Matches the end of its name.
        dtypes: Those it is then stored in; empty = any.
        n_dims: It has at least so many dimensions.
    """

    scheme: str
    name: re.Pattern[str] = re.compile("")
    dtypes: frozenset[str] = frozenset()
    n_dims: int = 0

    def fits(self, ref: TensorRef) -> bool:
        return (
            len(ref.shape) >= self.n_dims
            and (not self.dtypes or ref.dtype in self.dtypes)
            and self.name.search(ref.name) is not None
        )


_PACKED = frozenset({"I8", "U8", "I16", "I32"})
_MARKS = (
    _Mark(scheme="bitsandbytes 4-bit", name=re.compile(r"\.quant_state\.bitsandbytes__\w+$")),
    _Mark(scheme="bitsandbytes 8-bit", name=re.compile(r"\.SCB$")),
    _Mark(scheme="GPTQ", name=re.compile(r"\.g_idx$"), dtypes=_PACKED),
    _Mark(scheme="GPTQ or AWQ", name=re.compile(r"\.qweight$"), dtypes=_PACKED),
    _Mark(scheme="compressed-tensors", name=re.compile(r"\.weight_packed$"), dtypes=_PACKED),
    _Mark(scheme="MXFP4", name=re.compile(r"_blocks$"), dtypes=frozenset({"U8", "F4"})),
    _Mark(scheme="FP4 or FP6", dtypes=frozenset({"F4", "F6_E2M3", "F6_E3M2"}), n_dims=2),
    _Mark(
        scheme="FP8",
        dtypes=frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}),
        n_dims=2,
    ),
    _Mark(scheme="integers", name=re.compile(r"\.weight$"), dtypes=_PACKED, n_dims=2),
)
"""A model bears several; the first in this order names its scheme."""

_SPELLED_AS_DECLARED = (
    "aqlm auto-round autoround bitnet eetq exl2 exl3 finegrained_fp8 fouroversix fp_quant higgs "
    "hqq metal modelopt mxfp8 nvfp4 quanto quark sinq spqr torchao vptq"
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

_OTHER_WEIGHTS = re.compile(r"[^/]+\.safetensors|(pytorch|adapter)_model[^/]*\.bin")


def quantization(
    config: Config | None, tensors: Iterable[TensorRef], files: Iterable[str]
) -> str | None:
    """The scheme by which a model's weights are quantised; None where they are not.

    By its config first, then its tensors' names and types, then its files' names.
    """
    return _declared_scheme(config) or _stored_scheme(tensors) or _scheme_of_files(files)


def _declared_scheme(config: Config | None) -> str | None:
    declared = (config or {}).get("quantization_config")
    if not isinstance(declared, Mapping) or not declared:
        return None
    method = str(declared.get("quant_method") or "").lower()
    switches = [declared.get("load_in_4bit"), declared.get("load_in_8bit")]
    unknown = switches == [None, None]
    if method.startswith("bitsandbytes") or not (method or unknown):
        # Trainers leave the entry behind with both kinds switched off.
        return "bitsandbytes" if unknown or any(switches) else None
    return _DECLARED.get(method, "a quantisation that its config declares")


def _stored_scheme(tensors: Iterable[TensorRef]) -> str | None:
    borne = {i for ref in tensors for i, mark in enumerate(_MARKS) if mark.fits(ref)}
    return _MARKS[min(borne)].scheme if borne else None


def _scheme_of_files(files: Iterable[str]) -> str | None:
    names = list(files)
    if any(_OTHER_WEIGHTS.fullmatch(name) for name in names):
        return None
    return "GGUF" if any(name.lower().endswith(".gguf") for name in names) else None
