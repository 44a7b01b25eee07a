"""An adapter's tensor names, grouped by the module they change."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import ModelError

_PREFIX = "base_model.model."
_LEAVES = (
    "lora_A",
    "lora_B",
    "lora_E",
    "lora_magnitude_vector",
    "hada_w1_a",
    "hada_w1_b",
    "hada_w2_a",
    "hada_w2_b",
    "lokr_w1",
    "lokr_w1_a",
    "lokr_w1_b",
    "lokr_w2",
    "lokr_w2_a",
    "lokr_w2_b",
)
_LEAF = re.compile(rf"^(?P<module>.+)\.(?P<leaf>{'|'.join(_LEAVES)})(\.[\w-]+)?(\.weight)?$")
_UNREAD = re.compile(
    r"\.(lora_embedding_[AB]|hada_t[12]|lokr_t2|lora_bias|ranknum|original_module|base_layer)(\.|$)"
)
_FOREIGN = re.compile(r"(lora_(down|up)|lora_unet|lora_te\d?_|ia3_l|vera_lambda|oft_|boft_|hra_)")
_SAVED = re.compile(r"(\.modules_to_save(\.[\w-]+)?)?\.weight$")


@dataclass(slots=True)
class NamedTensors:
    """Tensor names by what they are.

    Attributes:
        leaves: Module path → leaf (`lora_A`, …) → tensor name.
        full: Module path → name of a saved full weight (modules_to_save).
        biases: Saved biases and norms: full values that no slot takes.
    """

    leaves: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    full: dict[str, str] = field(default_factory=dict)
    biases: list[str] = field(default_factory=list)


def group_names(names: Iterable[str]) -> NamedTensors:
    """The names of an adapter's tensors, grouped.

    Raises:
        ModelError: `unsupported-adapter` for other tools' spellings.
    """
    grouped = NamedTensors()
    for name in names:
        path = name.removeprefix(_PREFIX)
        leaf = _LEAF.match(path)
        if leaf is not None:
            grouped.leaves[_plain(leaf["module"])][leaf["leaf"]] = name
        elif _FOREIGN.search(path):
            raise ModelError(
                "unsupported-adapter", f"tensor {name!r} is not of a PEFT method that is read"
            )
        elif _UNREAD.search(path):
            continue
        elif _SAVED.search(path):
            grouped.full[_plain(_SAVED.sub("", path))] = name
        else:
            grouped.biases.append(name)
    return grouped


def _plain(module: str) -> str:
    """A module's path in the model that was wrapped."""
    return module.removesuffix(".base_layer").removesuffix(".original_module")
