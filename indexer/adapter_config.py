"""What adapter_config.json says that ΔW depends on, checked; which methods are supported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ..errors import ModelError
from .adapter_methods import METHODS
from .untrusted_text import shown, text_or_none

FAMILIES = {
    "lora": "lora", "hada": "loha", "lokr": "lokr", "ia3": "ia3", "vera": "vera",
} | {name: name for name in METHODS}  # fmt: skip
"""How a factor's name begins, and the formula it belongs to."""

OTHERS = tuple(map(str.upper, METHODS))
SUPPORTED = ("LORA", "ADALORA", "LOHA", "LOKR", "VERA", "IA3", *OTHERS)

_REFUSED_FOR = {
    "it adds learned inputs or states and leaves the weights alone": (
        "ADAPTION_PROMPT CARTRIDGE CPT MULTITASK_PROMPT_TUNING P_TUNING PREFIX_TUNING PROMPT_TUNING"
    ),
    "its update is a product with W that deltadex does not compute": "DEFT OSF PEANUT",
    "its update is rebuilt from seeds or indices that are not all stored": (
        "FROD TINYLORA UNILORA"
    ),
    "its factors have a structure that deltadex does not compute": "ADAMSS SHADOW SUPERTUNING",
    "it changes norms, biases or activations, not layer matrices": "BEFT LN_TUNING",
    "it chooses among several updates for each input, so there is no single ΔW": "LILY POLY XLORA",
    "it changes embeddings only": "TRAINABLE_TOKENS",
}
REFUSED = {method: why for why, methods in _REFUSED_FOR.items() for method in methods.split()}
"""Methods of PEFT whose ΔW is not computed, by `peft_type`."""

PARAMETERS = ("gate_up_proj", "down_proj")
"""Of stacked experts, those that LoRA may be of."""

_PROMPTS = ("prompt_embeddings", "prompt_encoder", "prompt_task_cols", "prompt_task_rows")

FILE = "adapter_config.json"

PLAIN_STARTS = ("", "true", "false", "gaussian", "eva", "orthogonal", "mica", "lycoris")
"""Values of `init_lora_weights` after which W is still the base's."""

COMPUTED_STARTS = ("pissa", "olora")
"""After these W is the base's less a part that follows from W alone."""

LOST_STARTS = {
    "corda": "covariances of its data",
    "loftq": "a quantised base",
    "lora_ga": "gradients of its data",
    "pissa_niter": "a random projection",
}
"""After these W is the base's less a part that follows from something not stored."""

VARIANTS = {
    "layer_replication": "its layers are copies of the base's, numbered anew",
    "use_qalora": "QALoRA's factors work on pooled inputs",
    "use_bdlora": "BD-LoRA's factors are block-diagonal",
    "kasa_config": "KaSA trains on a truncated base",
    "monteclora_config": "MonteCLoRA's update is sampled anew for each input",
    "arrow_config": "Arrow chooses among several updates for each input",
}
"""Settings of LoRA that change what its tensors mean."""

MAX_RANK = 1 << 20
"""LyCORIS writes 100,000 for "as large as can be"; no layer matrix has a larger rank."""

MAX_ALPHA = 1e9
"""Beyond it an update leaves float16, whatever its factors are."""

MAX_PARTS = 64
"""Parts of a fused matrix that PEFT 0.2 trains apart; there are three in a `c_attn`."""

MAX_PATTERNS = 4096

MAX_MATCHES = 1 << 23
"""Patterns times modules: each is tried on each."""

MAX_PATTERN = 256
"""Characters of a pattern, and of a module path that is matched with it."""

_ENDLESS = re.compile(r"\)[*+{]|\\[1-9]|\(\?(?!:)")
_REPEAT = re.compile(r"[*+{]")


def refused_by_names(parts: Iterable[str]) -> str | None:
    starts = {f"{m.lower()}_": m for m in REFUSED}
    for part in parts:
        if part in _PROMPTS:
            return "PROMPT_TUNING"
        if method := next((m for start, m in starts.items() if part.startswith(start)), None):
            return method
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The settings of an adapter; published files lack any of them, and None stands for those.
    `alphas`: patterns of module paths, in order, with their alpha; `start`: `pissa`, `olora` or "";
    `transposed_flag`: `fan_in_fan_out`, which matters to OLoRA only; `enabled`: PEFT 0.2's
    `enable_lora`, which equal parts of a fused matrix are trained; `stated`: the file as it is."""

    peft_type: str | None = None
    alpha: float | None = None
    rank: float | None = None
    init_rank: float | None = None
    alphas: tuple[tuple[str, float], ...] = ()
    ranks: tuple[tuple[str, float], ...] = ()
    rslora: bool = False
    dora: bool = False
    start: str = ""
    transposed_flag: bool = False
    targets: tuple[str, ...] = ()
    enabled: tuple[bool, ...] = ()
    notes: tuple[str, ...] = ()
    stated: Mapping[str, object] = field(default_factory=dict)

    def require_matchable(self, n_modules: int) -> None:
        """Pass if matching every pattern with every module cannot take long."""
        if (len(self.alphas) + len(self.ranks)) * n_modules > MAX_MATCHES:
            line = f"more patterns than are matched with {n_modules} modules"
            raise ModelError("bad-config", f"{FILE}: {line}")

    def alpha_of(self, module: str) -> float | None:
        """The alpha of the first pattern that fits, else the general one."""
        return next((v for p, v in self.alphas if matches(p, module)), self.alpha)

    def rank_of(self, module: str) -> float | None:
        return next((v for p, v in self.ranks if matches(p, module)), self.rank)


def peft_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """mlx-lm's settings in PEFT's words. Its `scale` is what multiplies B·A; where there is an
    `alpha`, too, versions differ in whether that counts, and the later ones are followed."""
    own = ("lora_parameters", "fine_tune_type", "lora_layers")
    if "peft_type" in config or not any(key in config for key in own):
        return config
    given = config.get("lora_parameters")
    stated: Mapping[str, object] = given if isinstance(given, Mapping) else config
    rank, scale = stated.get("rank"), stated.get("scale")
    settings: dict[str, object] = {"peft_type": "LORA", "r": rank}
    if isinstance(rank, int) and isinstance(scale, int | float):
        settings["lora_alpha"] = scale * rank
    settings["use_dora"] = config.get("fine_tune_type") == "dora" or config.get("use_dora") is True
    settings["base_model_name_or_path"] = config.get("model")
    return settings


def read_config(config: Mapping[str, object] | None) -> AdapterConfig:
    if config is None:
        return AdapterConfig(notes=(f"{FILE} is missing",))
    peft_type = _method(config)
    if peft_type != "ADALORA":
        for setting, why in VARIANTS.items():
            if config.get(setting):
                raise ModelError("unsupported-adapter", f"{FILE}: {setting} is set: {why}")
    _require_known_parameters(config)
    start, notes = _start(config) if peft_type in (None, "LORA") else ("", ())
    if config.get("alora_invocation_tokens"):
        notes = (*notes, "aLoRA: the update applies to a part of each text only")
    alpha = "lora_alpha" if "lora_alpha" in config else "alpha"
    targets = config.get("target_modules")
    names = targets if isinstance(targets, list) else []
    return AdapterConfig(
        peft_type=peft_type,
        alpha=_alpha(alpha, config.get(alpha)),
        rank=None if peft_type in OTHERS else _rank("r", config.get("r")),
        init_rank=_init_rank(config),
        alphas=_patterns(config, "alpha_pattern", _alpha),
        ranks=() if peft_type in ("ADALORA", *OTHERS) else _patterns(config, "rank_pattern", _rank),
        rslora=_flag(config, "use_rslora"),
        dora=_flag(config, "use_dora"),
        start=start,
        transposed_flag=_flag(config, "fan_in_fan_out"),
        targets=tuple(t for t in names if isinstance(t, str) and len(t) <= MAX_PATTERN),
        enabled=_enabled(config.get("enable_lora")),
        notes=notes,
        stated=config,
    )


def _require_known_parameters(config: Mapping[str, object]) -> None:
    """Pass if `target_parameters` are matrices, or experts whose names are certain."""
    stated = config.get("target_parameters")
    if not stated:
        return
    last = {str(n).rpartition(".")[2] for n in stated} if isinstance(stated, list) else {""}
    if not last <= {"weight", *PARAMETERS}:
        line = f"target_parameters other than {', '.join(PARAMETERS)}"
        why = "LoRA on such parameters is stored under ambiguous names"
        raise ModelError("unsupported-adapter", f"{FILE}: {line}: {why}")


def _enabled(value: object) -> tuple[bool, ...]:
    if value is None:
        return ()
    is_mask = isinstance(value, list) and all(isinstance(part, bool) for part in value)
    if not is_mask or len(value) > MAX_PARTS:  # type: ignore[arg-type]
        raise _bad("enable_lora", f"a list of at most {MAX_PARTS} times true or false")
    return tuple(value)  # type: ignore[arg-type]


def stated_method(config: Mapping[str, object]) -> str | None:
    """The method that a config names, in lower case; None where it names none."""
    stated = text_or_none(config.get("peft_type")) or ""
    return stated.strip().lower().removeprefix("pefttype.") or None


def _method(config: Mapping[str, object]) -> str | None:
    stated = config.get("peft_type")
    if not isinstance(stated, str | None):
        raise _bad("peft_type", "the name of a method")
    if stated is None:
        return None
    method = (stated_method(config) or "").upper()
    if method in SUPPORTED:
        return method
    if method in REFUSED:
        line = f"peft_type is {method}: {REFUSED[method]}"
        raise ModelError("unsupported-adapter", f"{FILE}: {line}")
    line = f"peft_type is not among {', '.join(SUPPORTED)}"
    raise ModelError("unsupported-adapter", f"{FILE}: {line}")


def _start(config: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    value = config.get("init_lora_weights")
    start = str(value).strip().lower() if isinstance(value, str | bool) else ""
    if start in COMPUTED_STARTS:
        return start, ()
    for lost, source in LOST_STARTS.items():
        if start.startswith(lost):
            raise ModelError(
                "unsupported-adapter",
                f"{FILE}: init_lora_weights is {lost}: training began at W less a part "
                f"that depends on {source}, which is not stored; save the adapter with "
                "path_initial_model_for_weight_conversion",
            )
    if start in PLAIN_STARTS:
        return "", ()
    return "", (f"init_lora_weights {shown(value)} is unknown; taken as ordinary LoRA",)


def _init_rank(config: Mapping[str, object]) -> float | None:
    """AdaLoRA's rank before pruning: stated, or the length of a mask over its ranks."""
    stated = _rank("init_r", config.get("init_r"))
    masks = config.get("rank_pattern")
    if stated is not None or not isinstance(masks, Mapping):
        return stated
    return next((float(len(mask)) for mask in masks.values() if isinstance(mask, list)), None)


def _patterns(
    config: Mapping[str, object], key: str, number_of: Callable[[str, object], float | None]
) -> tuple[tuple[str, float], ...]:
    stated = config.get(key)
    if not stated:
        return ()
    if not isinstance(stated, Mapping):
        raise _bad(key, "a mapping of patterns to numbers")
    if len(stated) > MAX_PATTERNS:
        raise _bad(key, f"at most {MAX_PATTERNS} patterns")
    numbers = []
    for pattern, value in stated.items():
        number = number_of(f"a value of {key}", value)
        _require_modest(key, str(pattern))
        if number is not None:
            numbers.append((str(pattern), number))
    return tuple(numbers)


def _require_modest(key: str, pattern: str) -> None:
    """Pass if a pattern is valid and cannot take long: re tries every way to match."""
    bare = re.sub(r"\\[^1-9]", "", pattern)
    if len(pattern) > MAX_PATTERN or _ENDLESS.search(bare) or len(_REPEAT.findall(bare)) > 2:
        expected = "a name, or a pattern of at most two repeats, none of a group"
        raise _bad(f"a key of {key}", expected)
    try:
        _compiled(pattern)
    except (re.error, OverflowError, RecursionError) as err:
        raise _bad(f"a key of {key}", "a regular expression") from err


def matches(pattern: str, module: str) -> bool:
    """Whether PEFT would apply a rank or alpha pattern to a module (`get_pattern_key`)."""
    return len(module) <= MAX_PATTERN and _compiled(pattern).match(module) is not None


@lru_cache(maxsize=2 * MAX_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(.*\.)?({pattern})$")


def _rank(key: str, value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_RANK:
        raise _bad(key, f"a whole number from 1 to {MAX_RANK}")
    return float(value)


def _alpha(key: str, value: object) -> float | None:
    """A number that PEFT can divide by a rank; 0 gives no update, as there."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _bad(key, "a number")
    if not abs(value) <= MAX_ALPHA:  # NaN neither
        raise _bad(key, f"a number from {-MAX_ALPHA:.0f} to {MAX_ALPHA:.0f}")
    return float(value) or 0.0


def _flag(config: Mapping[str, object], key: str) -> bool:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _bad(key, "true or false")


def _bad(key: str, expected: str) -> ModelError:
    return ModelError("bad-config", f"{FILE}: {key} is not {expected}")
