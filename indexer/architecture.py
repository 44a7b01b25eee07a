"""The tensors of a checkpoint, or the modules of an adapter, assigned to slots by `roles.json`.

Also where in a stored tensor a slot's matrix is, fused ones by layout; and whether a model's slots
are its base's. Every layout of a fused matrix is a pattern of runs that repeats: once for
contiguous matrices, once a head or a group of heads for interleaved ones. All were measured on
transformers' own modules.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib import resources
from itertools import takewhile
from typing import Any, Literal, TypeGuard

import torch

from ..errors import ModelError
from ..records import ROLE_NAME, STACK_NAME, Slot, role_order
from .untrusted_text import name_some

NESTED = ("text_config", "language_config", "llm_config")
HEADS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "attention_heads",
    "encoder_attention_heads",
    "num_query_heads",
)
KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads")
HEAD_DIM = ("head_dim", "kv_channels", "head_size", "d_head", "attention_head_dim")

Rows = slice | tuple[int, ...]
Runs = tuple[tuple[str, int], ...]

CODEGEN_BLOCKS = 4
"""CodeGen's weights were trained on four devices, and are stored in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """The attention settings of a config; None for those without a usable value. `grouped_decoder`:
    Falcon's `new_decoder_architecture`; `nope_dim` and `value_dim`: rows of a latent-attention key
    head that are not rotated, and of its value head; `by_layer`: query and key-value heads of each
    layer, where they differ."""

    model_type: str | None = None
    text_model_type: str | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    by_layer: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    multi_query: bool | None = None
    grouped_decoder: bool | None = None
    nope_dim: int | None = None
    value_dim: int | None = None
    inner_group: int | None = None

    def of_layer(self, layer: int) -> AttentionConfig:
        """The same with the heads of one layer."""
        query, key_value = (counts[layer : layer + 1] for counts in self.by_layer)
        if not query or not key_value:
            return self
        return replace(self, n_heads=query[0], n_kv_heads=key_value[0])


def read_attention_config(config: Mapping[str, object] | None) -> AttentionConfig:
    scopes = list(_scopes(config or {}))
    return AttentionConfig(
        model_type=_text(scopes[:1], "model_type"),
        text_model_type=_text(scopes[::-1], "model_type"),
        n_heads=_count(scopes, *HEADS),
        n_kv_heads=_count([*scopes, *_nested(config or {}, ("attn_config",))], *KEY_VALUE_HEADS),
        head_dim=_count(scopes, *HEAD_DIM),
        by_layer=(_counts(scopes, *HEADS), _counts(scopes, *KEY_VALUE_HEADS)),
        multi_query=_flag(scopes, "multi_query"),
        grouped_decoder=_flag(scopes, "new_decoder_architecture"),
        nope_dim=_count(scopes, "qk_nope_head_dim"),
        value_dim=_count(scopes, "v_head_dim"),
        inner_group=_count(scopes, "inner_group_num"),
    )


def _scopes(config: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield config
    yield from _nested(config, NESTED)


def _nested(config: Mapping[str, object], names: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for name in names:
        nested = config.get(name)
        if isinstance(nested, Mapping):
            yield nested


def _values(scopes: list[Mapping[str, object]], *names: str) -> Iterator[object]:
    return (scope[name] for scope in scopes for name in names if name in scope)


def _count(scopes: list[Mapping[str, object]], *names: str) -> int | None:
    return next((value for value in _values(scopes, *names) if _is_count(value)), None)


def _counts(scopes: list[Mapping[str, object]], *names: str) -> tuple[int, ...]:
    lists = (v for v in _values(scopes, *names) if isinstance(v, list) and all(map(_is_count, v)))
    return tuple(next(lists, ()))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _flag(scopes: list[Mapping[str, object]], name: str) -> bool | None:
    return next((v for v in _values(scopes, name) if isinstance(v, bool)), None)


def _text(scopes: list[Mapping[str, object]], name: str) -> str | None:
    return next((v for v in _values(scopes, name) if isinstance(v, str) and v), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One fused matrix and what is known of its model. `head_rows`: query rows, where the output
    projection beside it shows them; `inner_rows`: the same of a gate, by the down projection;
    `maybe_conv1d`: q, k and v may be contiguous."""

    out: int
    width: int
    config: AttentionConfig
    head_rows: int | None = None
    inner_rows: int | None = None
    maybe_conv1d: bool = True


def split_rows(split: str | Mapping[str, str], fused: Fused) -> Mapping[str, Rows] | None:
    """Rows of each role by a layout, or one a model type; None where it cannot be known."""
    if not isinstance(split, str):
        split = split.get(fused.config.text_model_type or "", "")
    pattern = _pattern(split, fused)
    return None if pattern is None else _deal(fused.out, *pattern)


def _pattern(split: str, fused: Fused) -> tuple[int, Runs] | None:
    """(repeats, runs) of a layout; None where a setting it needs is missing."""
    out, config = fused.out, fused.config
    match split:
        case "gate-up" | "up-gate" | "gate-up-interleaved" if fused.inner_rows not in (
            None,
            out / 2,
        ):
            return None
        case "gate-up":
            return 1, (("gate", out // 2), ("up", out // 2))
        case "up-gate":
            return 1, (("up", out // 2), ("gate", out // 2))
        case "gate-up-interleaved":
            return out // 2, (("gate", 1), ("up", 1))
        case "cross-halves":
            return 1, (("cross_k", out // 2), ("cross_v", out // 2))
        case "codegen" if config.text_model_type in (None, "codegen") and _is_three_squares(fused):
            run = out // (3 * CODEGEN_BLOCKS)
            return CODEGEN_BLOCKS, (("q", run), ("v", run), ("k", run))
        case "falcon" if config.grouped_decoder:
            return _grouped(fused, config.n_kv_heads)
        case "falcon" if config.multi_query is False:
            return _grouped(fused, config.n_heads)
        case "falcon" | "multi-query":
            return _shared_head(fused)
        case "per-head":
            return _grouped(fused, config.n_heads)
        case "per-group":
            return _grouped(fused, config.n_kv_heads)
        case "c-attn":
            return _c_attn(fused)
        case "grouped":
            return _grouped_runs(fused)
        case "latent-kv" if config.n_heads and config.nope_dim and config.value_dim:
            return config.n_heads, (("k", config.nope_dim), ("v", config.value_dim))
    return None


def _is_three_squares(fused: Fused) -> bool:
    """Whether query, key and value rows are each as many as the input's columns."""
    return fused.out == 3 * fused.width and fused.head_rows in (None, fused.width)


def _grouped(fused: Fused, n_kv: int | None) -> tuple[int, Runs] | None:
    """A run of query heads, then their key and value head, once for each of `n_kv`."""
    n_heads = fused.config.n_heads
    if not n_heads or not n_kv or n_heads % n_kv or fused.width % n_heads:
        return None
    if fused.head_rows not in (None, fused.width):
        return None
    head = fused.width // n_heads
    return n_kv, (("q", n_heads // n_kv * head), ("k", head), ("v", head))


def _shared_head(fused: Fused) -> tuple[int, Runs] | None:
    """All query heads, as wide as the input, then one key head and one value head."""
    head, n_heads = (fused.out - fused.width) // 2, fused.config.n_heads
    if head < 1 or fused.head_rows not in (None, fused.width) or fused.width % head:
        return None
    if n_heads and n_heads * head != fused.width:
        return None
    return 1, (("q", fused.width), ("k", head), ("v", head))


def _c_attn(fused: Fused) -> tuple[int, Runs] | None:
    """GPT-2's contiguous thirds, or either form of GPT-BigCode, which is never a Conv1D."""
    bigcode = fused.config.text_model_type == "gpt_bigcode"
    if bigcode and fused.config.multi_query is False:
        return _grouped(fused, fused.config.n_heads)
    if fused.out == 3 * (fused.head_rows or fused.width):
        third = fused.out // 3
        is_sure = not bigcode and fused.maybe_conv1d
        return (1, (("q", third), ("k", third), ("v", third))) if is_sure else None
    return _shared_head(fused) if fused.out < 3 * fused.width else None


def _grouped_runs(fused: Fused) -> tuple[int, Runs] | None:
    """All query heads, all key heads, all value heads: as many as the config says, and as the
    output projection is wide; where neither says it, as in a layer whose heads are all alike."""
    query, n_heads, n_kv = fused.head_rows, fused.config.n_heads, fused.config.n_kv_heads
    if n_heads and n_kv:
        head = fused.config.head_dim or fused.out // (n_heads + 2 * n_kv)
        stated = n_heads * head
        if query not in (None, stated) or fused.out != stated + 2 * n_kv * head:
            return None
        query = stated
    elif query is None and fused.out == 3 * fused.width:
        query = fused.width
    if query is None or (fused.out - query) % 2 or query % (n_heads or 1):
        return None
    other = (fused.out - query) // 2
    return 1, (("q", query), ("k", other), ("v", other))


@lru_cache(maxsize=256)
def _deal(out: int, repeats: int, runs: Runs) -> Mapping[str, Rows] | None:
    """Rows of each run's role; None if the pattern does not fill the matrix exactly."""
    period = sum(size for _, size in runs)
    if repeats * period != out or min(size for _, size in runs) < 1:
        return None
    rows: dict[str, Rows] = {}
    start = 0
    for role, size in runs:
        if repeats == 1:
            rows[role] = slice(start, start + size)
        elif size == 1:
            rows[role] = slice(start, out, period)
        else:
            starts = range(start, out, period)
            rows[role] = tuple(row for first in starts for row in range(first, first + size))
        start += size
    return rows


Key = tuple[Slot, str]
"""A slot and the part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slot's matrix, or one part of it, inside a stored tensor. `part`: "" for the usual single
    matrix, else the piece ("expert.3", "shared", "q_a", …): parts of one slot are blocks of one
    update. `module`: name as in the base's own file, without prefix; `index`: where experts are
    stacked; `transposed`: stored in × out; `rows`: output rows that belong here, None for all."""

    slot: Slot
    part: str
    module: str
    tensor: str
    index: int | None = None
    transposed: bool = False
    rows: slice | tuple[int, ...] | None = None
    shape: tuple[int, int]

    @property
    def key(self) -> Key:
        return self.slot, self.part

    @property
    def first_row(self) -> int:
        if self.rows is None:
            return 0
        return (self.rows.start or 0) if isinstance(self.rows, slice) else self.rows[0]

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """This placement's (out, in) matrix as a view where possible, dtype kept."""
        return self.cut_matrix(tensor if self.index is None else tensor[self.index])

    def cut_matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        """The same from the stored matrix at its index."""
        return self.cut_rows(matrix.T if self.transposed else matrix)

    def cut_rows(self, matrix: torch.Tensor) -> torch.Tensor:
        """The rows of an (out, …) matrix that belong here: a fused ΔW, or its left factor."""
        if self.rows is None:
            return matrix
        if isinstance(self.rows, slice):
            return matrix[self.rows]
        return matrix[torch.tensor(self.rows)]


@dataclass(frozen=True, kw_only=True)
class PlacedModel:
    """Where every tensor of a checkpoint, or every module of an adapter, belongs: placements by
    stack, layer, role and part; what is known to be no slot; `unread`: matrices in numbered layers
    that no rule places, and factors of adapters there. All tensors are in one of the three."""

    placements: tuple[Placement, ...]
    ignored: tuple[str, ...]
    unread: tuple[str, ...]

    def require_known(self) -> None:
        if self.unread:
            _refuse_factors(self.unread)
            raise ModelError(
                "unknown-architecture",
                f"cannot place {name_some(self.unread)}: expected layer matrices named as "
                "transformers names them; such an architecture is not supported yet",
            )

    @property
    def share_read(self) -> str:
        """How many of the layers' stored matrices have slots, `8 of 12`."""
        n_read = len(self.by_tensor())
        return f"{n_read} of {n_read + len(self.unread)}"

    def by_tensor(self) -> dict[str, list[Placement]]:
        placements: dict[str, list[Placement]] = {}
        for placement in self.placements:
            placements.setdefault(placement.tensor, []).append(placement)
        return placements

    @cached_property
    def by_key(self) -> Mapping[Key, Placement]:
        return {placement.key: placement for placement in self.placements}

    @cached_property
    def by_module(self) -> Mapping[str, Placement]:
        return {placement.module: placement for placement in reversed(self.placements)}

    @cached_property
    def by_end(self) -> Mapping[str, frozenset[str]]:
        """Tensors by the path of their module from the number of its layer on."""
        names: dict[str, set[str]] = defaultdict(set)
        for placement in self.placements:
            number = NUMBER.search(placement.module)
            names[placement.module[number.start() if number else 0 :]].add(placement.tensor)
        return {module: frozenset(tensors) for module, tensors in names.items()}

    @cached_property
    def longest_module(self) -> int:
        return max(map(len, self.by_module), default=0)


def whole_modules(placed: PlacedModel) -> PlacedModel:
    """The same with a fused matrix as one placement: the slot of its first part, and as `part` the
    roles that it holds, `q+k+v`."""
    groups: dict[tuple[str, int | None], list[Placement]] = {}
    for placement in placed.placements:
        groups.setdefault((placement.tensor, placement.index), []).append(placement)
    return replace(placed, placements=tuple(map(_whole, groups.values())))


def _whole(group: Sequence[Placement]) -> Placement:
    first = group[0]
    if len(group) == 1:
        return first
    part = ".".join(filter(None, ("+".join(p.slot.role for p in group), first.part)))
    shape = sum(p.shape[0] for p in group), first.shape[1]
    return replace(first, part=part, rows=None, shape=shape)


def sort_key(placement: Placement) -> tuple[str, int, tuple[int, str], str, int]:
    slot = placement.slot
    part = placement.part.rstrip("0123456789")
    number = int(placement.part[len(part) :] or -1)
    return slot.stack, slot.layer, role_order(slot.role), part, number


def require_same_layers(child: PlacedModel, base: PlacedModel) -> None:
    """Pass if both fill the same parts of the same slots with matrices of equal shape, and what no
    slot takes in one is in the other, too."""
    pairs = pair_unread(child.unread, base.unread)
    require_none_new([name for name in child.unread if name not in pairs])
    ours, theirs = child.by_key, base.by_key
    missing = [placement for key, placement in theirs.items() if key not in ours]
    added = [placement for key, placement in ours.items() if key not in theirs]
    if missing or added:
        raise ModelError("layer-mismatch", _differences(missing, added, len(theirs)))
    if lost := sorted(set(base.unread) - set(pairs.values())):
        raise ModelError("layer-mismatch", f"lacks {name_some(lost)} of the base's layers")
    _require_equal_shapes(child, base)


def pair_unread(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """The base's tensor of each of a model's that no slot takes, where it has one of the same name
    from the layers on."""
    by_end = {_from_layers(name): name for name in theirs}
    pairs = {name: by_end.get(_from_layers(name)) for name in ours}
    return {name: other for name, other in pairs.items() if other is not None}


def require_none_new(names: Sequence[str]) -> None:
    """Refuse, as `not-read`, a model with these tensors in its layers, which its base has not."""
    _refuse_factors(names)
    if names:
        raise ModelError(
            "not-read",
            f"{len(names)} tensors of its layers are no slot's and none of the base's: "
            f"{name_some(names)}; expected layer matrices named as transformers names them",
        )


def _refuse_factors(names: Sequence[str]) -> None:
    """Refuse, as `not-read`, a checkpoint that holds factors of an adapter."""
    if factors := [name for name in names if has_factor(name)]:
        raise ModelError(
            "not-read",
            "an adapter beside the weights that it changes, as in the whole state dict of a PEFT "
            f"model: {name_some(factors)}; without its adapter_config.json its scale is not known: "
            "put that beside it, or merge it (merge_and_unload)",
        )


def _from_layers(name: str) -> str:
    """A tensor's name from the path of its layers on, whatever it is wrapped in."""
    module = name.removesuffix(WEIGHT)
    match = next(_layers(module), None)
    if match is not None:
        return module[match.start() :]
    parts = module.split(".")
    first = next((n for n, part in enumerate(parts) if part.isdecimal()), 1)
    return ".".join(parts[max(0, first - 1) :])


def in_slots_of(adapter: PlacedModel, base: PlacedModel) -> PlacedModel:
    """The same with each module that the base has by name, and with as many rows and columns, in
    the slots that the base has it in."""
    parts = base.by_tensor()
    placements: list[Placement] = []
    for module, own in adapter.by_tensor().items():
        theirs = parts.get(_same_module(module, base) or "", [])
        is_one = all(p.index is None for p in (*own, *theirs))
        if theirs and is_one and _whole(theirs).shape == _whole(own).shape:
            placements += [replace(p, tensor=module, transposed=False) for p in theirs]
        else:
            placements += (_in_only_stack(p, base) for p in own)
    return replace(adapter, placements=tuple(sorted(placements, key=sort_key)))


def _in_only_stack(placement: Placement, base: PlacedModel) -> Placement:
    """The same in the one stack of the base that has such a matrix, where its own has none and is a
    guess."""
    slot, part = placement.key
    if placement.key in base.by_key or not placement.module.startswith(f"{OPEN_PATH}."):
        return placement
    keys = ((replace(slot, stack=stack), part) for stack in {p.slot.stack for p in base.placements})
    alike = [
        key for key in keys if key in base.by_key and base.by_key[key].shape == placement.shape
    ]
    return replace(placement, slot=alike[0][0]) if len(alike) == 1 else placement


def _same_module(module: str, base: PlacedModel) -> str | None:
    """The base's tensor whose name agrees with a module's to the most words from the end; None
    where no block's does, or several do."""
    ends = (base.by_end.get(end) for end in path_ends(module, base.longest_module))
    tensors = next(filter(None, ends), ())
    shared = {name: _shared_end(module, name.removesuffix(WEIGHT)) for name in tensors}
    best = [name for name, n in shared.items() if n == max(shared.values())]
    return best[0] if len(best) == 1 else None


def _shared_end(name: str, other: str) -> int:
    pairs = zip(reversed(name.split(".")), reversed(other.split(".")), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def require_within_base(adapter: PlacedModel, base: PlacedModel) -> None:
    """Pass if every matrix that the adapter changes is in the base, with equal shape."""
    absent = [p for p in adapter.placements if p.key not in base.by_key]
    if absent:
        modules = name_some(list(dict.fromkeys(p.tensor for p in absent)))
        raise ModelError(
            "unknown-targets",
            f"the base has no {_slots(absent)} (modules {modules}); "
            "index the adapter with the base that it was trained on",
        )
    _require_equal_shapes(adapter, base)


def _require_equal_shapes(child: PlacedModel, base: PlacedModel) -> None:
    unequal = [p for p in child.placements if p.shape != base.by_key[p.key].shape]
    if unequal:
        first, expected = unequal[0], base.by_key[unequal[0].key]
        more = f", and {len(unequal) - 1} more differ" if len(unequal) > 1 else ""
        raise ModelError(
            "shape-mismatch",
            f"tensor {first.tensor!r} gives {_label(first)} the shape {first.shape}, the base "
            f"has {expected.shape}{more}; index it with its own base",
        )


def _differences(missing: Sequence[Placement], added: Sequence[Placement], n: int) -> str:
    differences = []
    if missing:
        lost = f"{len(missing)} of the base's {n} layer matrices"
        differences.append(f"lacks {lost}: {_slots(missing)}")
    if added:
        differences.append(f"has {len(added)} that the base lacks: {_slots(added)}")
    if any(p.slot.role == "qkv" for p in (*missing, *added)):
        differences.append("one config.json does not say how a fused q/k/v matrix is laid out")
    return "; ".join(differences) + "; index it with its own base"


def _slots(placements: Sequence[Placement]) -> str:
    return name_some([_label(p) for p in placements]).replace("'", "")


def _label(placement: Placement) -> str:
    return f"{placement.slot}.{placement.part}" if placement.part else str(placement.slot)


NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
"""A whole component of a name that is a number; written `N` in the table."""

LONGEST = 1000
"""Characters in a name beyond which it is no layer's; searching longer ones would cost."""

MAX_PATHS = 8
"""Layer paths that are looked for in one name; those of real models have at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the tensors with one suffix inside a numbered layer are. `part`: "expert" is completed
    by its number; `split`: a fused matrix's layout, or one for each model type; `stack`: that this
    suffix alone identifies; `conv1d`: stored in × out where the model uses GPT-2's Conv1D."""

    suffix: re.Pattern[str]
    within: str = ""
    role: str = ""
    part: str = ""
    split: str | Mapping[str, str] = ""
    stack: str = ""
    conv1d: bool = False
    stacked: bool = False


class Table:
    """`roles.json` with its patterns compiled. `stack_of_owner`: for paths that several
    architectures share, by the model type or by the word before the path."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.layers: dict[str, str] = {entry["path"]: entry["stack"] for entry in raw["layers"]}
        paths = "|".join(re.escape(path).replace("N", "[0-9]{1,6}") for path in self.layers)
        self.layer_pattern = re.compile(rf"(?<![^.])(?P<path>{paths})\.(?P<layer>[0-9]{{1,6}})\.")
        self.beside_others = {e["path"] for e in raw["layers"] if e.get("beside_others")}
        self.wrappers = frozenset(raw["wrappers"])
        self.stack_of_owner: dict[str, str] = raw["stack_of_owner"]
        self.stack_of_embedding: dict[str, str] = raw["stack_of_embedding"]
        self.rules = tuple(map(_rule, raw["rules"]))
        self.ignored = tuple(map(_rule, raw["ignored_suffixes"]))
        self.ignored_word = re.compile("|".join(raw["ignored_words"]), re.IGNORECASE)
        self.attention_word = re.compile(raw["attention_words"], re.IGNORECASE)
        self.outside_word = re.compile("|".join(raw["outside_words"]), re.IGNORECASE)
        self.factor_word = re.compile("|".join(raw["factor_words"]))


@cache
def table() -> Table:
    text = resources.files(__package__).joinpath("roles.json").read_text(encoding="utf-8")
    return Table(json.loads(text))


@cache
def _search(kind: Literal["rules", "ignored"], path: str) -> Callable[[str], Rule | None]:
    """What finds the first rule for a suffix below a layer path, numbers written `N` in both: one
    expression of all suffixes, as most suffixes of an unknown model fit none of a hundred."""
    rules: tuple[Rule, ...] = getattr(table(), kind)
    holding = [rule for rule in rules if rule.within in ("", path)]
    any_of_them = re.compile(
        "|".join(f"(?P<r{n}>{rule.suffix.pattern})" for n, rule in enumerate(holding)) or "(?!)"
    )

    @lru_cache(maxsize=4096)
    def first(suffix: str) -> Rule | None:
        match = any_of_them.fullmatch(suffix)
        # the group of the rule closes last
        return holding[int((match.lastgroup or "r0")[1:])] if match else None

    return first


@lru_cache(maxsize=4096)
def is_ignored(path: str, suffix: str) -> bool:
    """Whether a suffix below a layer path is known to be no slot; numbers written `N`."""
    if _search("ignored", path)(suffix) is not None:
        return True
    return any(table().ignored_word.fullmatch(word) for word in suffix.split("."))


def without_numbers(name: str) -> str:
    return NUMBER.sub("N", name)


def _rule(entry: dict[str, Any]) -> Rule:
    fields = {key: value for key, value in entry.items() if key not in ("suffix", "in")}
    pattern = re.compile(entry["suffix"].replace(".", r"\."))
    return Rule(suffix=pattern, within=entry.get("in", ""), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A tensor that a rule places, before its stack is known. `groups`: numbers inside the layer
    path (ALBERT's shared group); `expert`: the last number in the suffix, or -1."""

    tensor: str
    shape: tuple[int, ...]
    prefix: str
    path: str
    groups: tuple[int, ...]
    layer: int
    suffix: str
    module: str
    expert: int
    rule: Rule


def locate(tensor: str, module: str, shape: tuple[int, ...]) -> Spot | None:
    """A tensor's place, by its name without `.weight`; None if no rule matches."""
    for match in _layers(module):
        path, rest = without_numbers(match["path"]), module[match.end() :]
        suffix = without_numbers(rest)
        rule = _search("rules", path)(suffix)
        if rule is None:
            continue
        numbers = NUMBER.findall(rest)
        return Spot(
            tensor=tensor,
            shape=shape,
            prefix=module[: match.start()],
            path=path,
            groups=tuple(map(int, NUMBER.findall(match["path"]))),
            layer=int(match["layer"]),
            suffix=suffix,
            module=module[match.start() :],
            expert=int(numbers[-1]) if numbers else -1,
            rule=rule,
        )
    return None


@dataclass(frozen=True, slots=True)
class Numbered:
    """Where a name's layer number is; numbers elsewhere are written `N`, and a path that is not in
    the table ""."""

    before: str
    path: str
    suffix: str

    def __str__(self) -> str:
        return f"{self.before.rpartition('.')[2]}.{self.suffix}"


def find_number(module: str) -> Numbered | None:
    """The layer number behind a known path, else the first behind any word, else None."""
    match = next(_layers(module), None)
    if match is not None:
        suffix = without_numbers(module[match.end() :])
        return Numbered(module[: match.end("path")], without_numbers(match["path"]), suffix)
    parts = module.split(".")
    for i in range(1, len(parts) - 1):
        if parts[i].isdecimal() and not parts[i - 1].isdecimal():
            return Numbered(".".join(parts[:i]), "", without_numbers(".".join(parts[i + 1 :])))
    return None


def path_ends(module: str, longest: int) -> Iterator[str]:
    """Every end of a module's path that begins with a whole component and has at most `longest`
    characters, the longest first."""
    if len(module) <= longest:
        start = 0
    elif not (start := module.find(".", len(module) - longest - 1) + 1):
        return
    yield module[start:]
    while start := module.find(".", start) + 1:
        yield module[start:]


def _layers(module: str) -> Iterator[re.Match[str]]:
    pattern = table().layer_pattern
    match = pattern.search(module) if len(module) <= LONGEST else None
    for _ in range(MAX_PATHS):
        if match is None:
            return
        yield match
        match = pattern.search(module, match.start() + 1)


Shape = tuple[int, ...]
WEIGHT = ".weight"

Stacks = Mapping[str, Sequence[Spot]]

MAX_EXPERTS = 4096
"""The most of one tensor: each is a matrix of its own, so that a small file could hold any number;
the largest mixtures have some hundreds."""

HEADS_OF_CONFIG = ("encoder", "decoder", "text")

OPEN_PATH = "layers"
"""A layer path of encoders, decoders and towers alike."""


def place(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of a checkpoint's tensors, whatever their prefix and order; `shapes`: as stored, by
    full name. Only interleaved layouts need the config.json."""
    return _place(shapes, config, stored=True)


def place_modules(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of an adapter's modules; some layers or none may be there. Without the base's
    config.json, a `c_attn` with three times as many rows as columns is GPT-2's. `shapes`: (out, in)
    by module path, as named on disk or in memory by any transformers; stacked experts (expert, out,
    in)."""
    return _place(shapes, config, stored=False)


def _place(
    shapes: Mapping[str, Shape], config: Mapping[str, object] | None, *, stored: bool
) -> PlacedModel:
    facts = read_attention_config(config)
    spots, odd, rest = _locate_all(shapes, stored=stored)
    unruled = find_unread(rest, shapes, in_any_number=not stored)
    by_name = {name: _spot_by_name(name, shapes[name], stored=stored) for name in unruled}
    spots += filter(None, by_name.values())
    unread = odd + [name for name, spot in by_name.items() if spot is None]
    stacks = gather_stacks(spots, shapes.keys(), facts)
    placements = [
        placement
        for stack, group in stacks.items()
        for placement in place_stack(stack, group, facts, stored=stored)
    ]
    placed = PlacedModel(
        placements=tuple(sorted(placements, key=sort_key)),
        ignored=tuple(sorted(set(rest) - set(unruled))),
        unread=tuple(sorted(unread)),
    )
    _refuse_doubles(placed.placements)
    if stored:
        _require_some(placed)
    return placed


def _locate_all(
    shapes: Mapping[str, Shape], *, stored: bool
) -> tuple[list[Spot], list[str], list[str]]:
    spots, odd, rest = [], [], []
    for name, shape in shapes.items():
        spot = locate(name, name.removesuffix(WEIGHT), shape)
        if spot is None or (stored and spot.rule.stacked == name.endswith(WEIGHT)):
            rest.append(name)
        elif not _is_whole_matrix(spot, stored=stored):
            odd.append(name)
        else:
            spots.append(spot)
    return spots, odd, rest


def _spot_by_name(tensor: str, shape: Shape, *, stored: bool) -> Spot | None:
    """The place of a matrix in a numbered block that no rule names: its role is its name inside the
    block, its part the numbers in that name. None for factors, and where it has no such place."""
    module = tensor.removesuffix(WEIGHT)
    block = None if has_factor(module) else _BLOCK.fullmatch(module[_last_block(module) :])
    if block is None:
        return None
    words = [word for word in block["rest"].split(".") if not word.isdecimal()]
    role = ".".join(words or [block["path"].rpartition(".")[2]])
    rule = Rule(
        suffix=_BLOCK,
        role=role,
        part=".".join(NUMBER.findall(block["rest"])),
        conv1d=role.rpartition(".")[2].startswith("c_"),
        stacked=len(shape) == 3,
    )
    spot = Spot(
        tensor=tensor,
        shape=shape,
        prefix=module.removesuffix(block[0]),
        path=block["path"],
        groups=(),
        layer=int(block["layer"]),
        suffix=without_numbers(block["rest"]),
        module=block[0],
        expert=-1,
        rule=rule,
    )
    return spot if ROLE_NAME.fullmatch(role) and _is_whole_matrix(spot, stored=stored) else None


def _last_block(module: str) -> int:
    """Where the path of the block begins: of the layer paths that are known the first, or the last
    in a stage, but for sublayers that are numbered in a block (T5's `layer`); else the first
    numbered word."""
    known = list(_layers(module))
    staged = [m for m in known if m["path"] != "layer" and _STAGE.search(module[: m.start()])]
    if known:
        return (staged[-1] if staged else known[0]).start()
    parts = module.split(".")
    for i in range(1, len(parts) - 1):
        if parts[i].isdecimal() and not parts[i - 1].isdecimal():
            return len(".".join(parts[: i - 1])) + (i > 1)
    return len(module)


_BLOCK = re.compile(r"(?P<path>\D[^.]*(?:\.\D[^.]*)*)\.(?P<layer>[0-9]{1,6})\.(?P<rest>.+)")


def _is_whole_matrix(spot: Spot, *, stored: bool) -> bool:
    """Whether a tensor has the dimensions that its rule wants; where it is stored, none is 0."""
    if len(spot.shape) != (3 if spot.rule.stacked else 2) or (stored and 0 in spot.shape):
        return False
    return not spot.rule.stacked or spot.shape[0] <= MAX_EXPERTS


def is_matrix(shape: Shape) -> bool:
    """Whether a tensor can be a layer's matrix, or a stack of them: no vector, and no kernel of a
    convolution over more than one axis."""
    return len(shape) in (2, 3) and sum(size > 1 for size in shape) > 1


_POINTWISE = re.compile(r"(^|\.)(pw|pointwise_)conv\d*$")
"""Matrices by the name of a convolution over one place."""


def find_unread(
    names: Iterable[str], shapes: Mapping[str, Shape], *, in_any_number: bool = False
) -> list[str]:
    """Those of the names, which no rule places, that are a layer's matrices, or factors of an
    adapter's there. A number behind an unknown word is a layer's where several numbers have the
    same tensor, or one has attention, or `in_any_number`."""
    numbers = {name: find_number(name.removesuffix(WEIGHT)) for name in shapes}
    times = Counter(numbers.values())
    attends = table().attention_word.search
    blocks = {
        number.before
        for number, n in times.items()
        if number and (n > 1 or in_any_number or number.path or attends(f"{number}"))
    }
    return [
        name
        for name in names
        if (number := numbers[name]) is not None
        and number.before in blocks
        and (
            has_factor(number.suffix)
            or (is_matrix(shapes[name]) and _is_in_layer(number))
            or (len(shapes[name]) == 2 and _POINTWISE.search(number.suffix))
        )
    ]


def has_factor(name: str) -> bool:
    """Whether a part of a tensor's name is that of an adapter's factor."""
    return any(map(table().factor_word.fullmatch, name.split(".")))


def layer_modules(modules: Iterable[str]) -> frozenset[str]:
    """The module paths inside numbered layers, be they placeable or unknown; no head is among them,
    no embedding, and nothing that is known to be no slot."""
    return frozenset(
        module
        for module in modules
        if _is_in_layer(find_number(module)) or locate(module, module, ()) is not None
    )


def require_known_slots(
    adapter: PlacedModel, shapes: Mapping[str, tuple[int, int]], base_name: str
) -> None:
    """Pass if most matrices that an adapter changes may be those of a base by what its models have
    (`shapes`: as of `Job`), else `other-base`. A role or layer that no model of the family changed
    yet may be there; a stack may, where models of that architecture have several."""
    if not shapes:
        return
    stacks = {name.partition(".")[0] for name in shapes}
    foreign = [p for p in adapter.placements if _is_foreign(p, shapes, stacks)]
    if 2 * len(foreign) > len(adapter.placements):
        first = foreign[0]
        known = shapes.get(str(first.slot)) or f"no {first.slot.stack}"
        raise ModelError(
            "other-base",
            f"{len(foreign)} of {len(adapter.placements)} matrices are none of {base_name}'s: "
            f"{name_some([first.tensor])} fills {first.slot} with the shape {first.shape}, its "
            f"models have {known}; index it with its own base",
        )


def _is_foreign(
    placement: Placement, shapes: Mapping[str, tuple[int, int]], stacks: Collection[str]
) -> bool:
    slot = placement.slot
    known = shapes.get(str(slot))
    if known is None and slot.stack not in stacks:
        number = find_number(placement.module)
        path = number.path if number else ""
        if path != OPEN_PATH:
            return path not in table().beside_others
        if slot.stack != table().layers[path]:  # a tower beside the language model
            return False
        # without a config its stack is a guess: the matrix may be known under another
        others = (shapes.get(f"{stack}.{slot.layer}.{slot.role}") for stack in sorted(stacks))
        return placement.shape not in others
    return placement.part == "" and known not in (None, placement.shape)


def _is_in_layer(number: Numbered | None) -> bool:
    """Whether a matrix is a layer's; heads, which may be numbered too, are not."""
    if number is None or is_ignored(number.path, number.suffix):
        return False
    return not any(map(table().outside_word.fullmatch, number.before.split(".")))


def _refuse_doubles(placements: Sequence[Placement]) -> None:
    by_key: dict[Key, list[Placement]] = defaultdict(list)
    for placement in placements:
        by_key[placement.key].append(placement)
    for same in by_key.values():
        if len(same) > 1:
            line = f"{name_some([p.tensor for p in same])} all fill {_label(same[0])}"
            raise ModelError("unknown-architecture", f"{line}: expected one tensor")


def _require_some(placed: PlacedModel) -> None:
    if not placed.placements:
        placed.require_known()
        seen = name_some(placed.ignored[:2]) or "none"
        raise ModelError(
            "no-attention",
            f"has no matrix in numbered blocks among its tensors (it has {seen}); only models of "
            "blocks that repeat can be fingerprinted",
        )


def gather_stacks(spots: Iterable[Spot], names: Collection[str], config: AttentionConfig) -> Stacks:
    groups: dict[tuple[str, str], list[Spot]] = defaultdict(list)
    for spot in spots:
        groups[spot.prefix, spot.path].append(spot)
    stacks: dict[str, list[Spot]] = {}
    for group in sorted(groups.values(), key=_closeness):
        stack = _stack(group, names, config)
        if stack in stacks:
            stack = _own_stack(group[0])
        if stack in stacks:
            stack = _stack_name(f"{group[0].prefix}{group[0].path}")
        stacks.setdefault(stack, []).extend(group)
    return stacks


def _closeness(group: Sequence[Spot]) -> tuple[int, str, str]:
    """Of several stacks of one kind, the first is the one with the fewest words of its own before
    its layers, as the language model's beside its towers'."""
    words = group[0].prefix.rstrip(".").split(".")
    return sum(word not in table().wrappers for word in words), group[0].prefix, group[0].path


def _stack(group: Sequence[Spot], names: Collection[str], config: AttentionConfig) -> str:
    first = group[0]
    by_suffix = next((spot.rule.stack for spot in group if spot.rule.stack), "")
    default = by_suffix or table().layers.get(first.path, "")
    if not default or _STAGE.search(first.prefix):
        return _own_stack(first)
    if by_suffix or first.path not in ("layers", "encoder.layers", "blocks"):
        return default
    for embedding, stack in table().stack_of_embedding.items():
        if first.path == "encoder.layers" and f"{first.prefix}{embedding}.weight" in names:
            return stack
    by_owner = table().stack_of_owner
    owners = (by_owner[w] for w in reversed(first.prefix.split(".")) if w in by_owner)
    return next(owners, "") or by_owner.get(config.model_type or "") or default


_STAGE = re.compile(r"(?<![^.])[^.]*(layer|stage|block|level|group)s?\.[0-9]{1,6}\.$")
"""The end of a prefix in which blocks are numbered stage by stage, `layers.0.` of Swin."""


def _own_stack(first: Spot) -> str:
    """The name of a tower or stage: the words that say which it is."""
    if stage := _STAGE.search(first.prefix):
        return _stack_name(f"{stage[0]}{first.path}")
    if first.path not in table().layers:
        return _stack_name(first.path)
    own = [word for word in first.prefix.split(".") if word not in table().wrappers]
    return _stack_name(own[-1] if own else f"{first.prefix}{first.path}")


def _stack_name(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "/", path)
    return name if STACK_NAME.fullmatch(name) else "stack"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackContext:
    """What is known of one stack from all its tensors; `stored`: shapes are as on disk, otherwise
    they are (out, in) already; `widths`: columns of a layer's matrix of a role, where it is one and
    they are known."""

    stack: str
    config: AttentionConfig
    stored: bool
    conv1d: bool
    inner_group: int
    shapes: Mapping[tuple[int, str], tuple[int, ...]]
    widths: Mapping[tuple[int, str], int]


def place_stack(
    stack: str, spots: Sequence[Spot], config: AttentionConfig, *, stored: bool
) -> Iterator[Placement]:
    if stack not in HEADS_OF_CONFIG:  # the config's heads are the language model's
        config = replace(config, n_heads=None, n_kv_heads=None, head_dim=None, by_layer=((), ()))
    # q, k and v together are wider than the input, so only in × out is flat
    conv1d = stored and any(
        s.shape[0] < s.shape[1]
        for s in spots
        if s.rule.split == "c-attn" or (s.rule.conv1d and s.rule.role == "up")
    )
    context = StackContext(
        stack=stack,
        config=config,
        stored=stored,
        conv1d=conv1d,
        inner_group=config.inner_group or 1 + max(spot.layer for spot in spots),
        shapes={(spot.layer, spot.suffix): spot.shape for spot in spots},
        widths={
            (spot.layer, spot.rule.role): spot.shape[0 if conv1d and spot.rule.conv1d else -1]
            for spot in spots
            if not spot.rule.part and not spot.rule.split and spot.shape[-1]
        },
    )
    for spot in spots:
        yield from _stack_placements(spot, context)


def _stack_placements(spot: Spot, context: StackContext) -> Iterator[Placement]:
    if spot.rule.stacked:
        is_flat = spot.rule.part == "expert" and _has_flat_experts(spot, context)
        transposed = context.stored and is_flat
    else:
        transposed = context.conv1d and spot.rule.conv1d
    out, width = spot.shape[-2:][::-1] if transposed else spot.shape[-2:]
    layer = spot.layer + (spot.groups[0] * context.inner_group if spot.groups else 0)
    rows_of = _rows(spot, context, out, width, transposed)
    for index in range(spot.shape[0]) if spot.rule.stacked else (None,):
        for role, rows in rows_of.items():
            part = spot.rule.part
            if part == "expert":
                part = f"expert.{spot.expert if index is None else index}"
            elif index is not None and not spot.rule.split:
                part = ".".join(filter(None, (part, str(index))))
            chosen = range(out)[rows] if isinstance(rows, slice) else rows
            yield Placement(
                slot=Slot(context.stack, layer, role),
                part=part,
                module=spot.module,
                tensor=spot.tensor,
                index=index,
                transposed=transposed,
                rows=rows,
                shape=(out if chosen is None else len(chosen), width),
            )


def _has_flat_experts(spot: Spot, context: StackContext) -> bool:
    """Whether stacked experts are stored in × out, as gpt_oss does: gate_up is twice as long as
    down on the side of the inner width, whichever that is."""
    gate_up = context.shapes.get((spot.layer, "mlp.experts.gate_up_proj"))
    down = context.shapes.get((spot.layer, "mlp.experts.down_proj"))
    if gate_up is None or down is None:
        return context.config.text_model_type == "gpt_oss"
    return gate_up[2] == 2 * down[1] and gate_up[1] == down[2]


def _rows(
    spot: Spot, context: StackContext, out: int, width: int, transposed: bool
) -> Mapping[str, Rows | None]:
    split = spot.rule.split
    if not split:
        return {spot.rule.role: None}
    if spot.rule.stacked and (transposed or context.config.text_model_type == "gpt_oss"):
        split = "gate-up-interleaved"
    fused = Fused(
        out=out,
        width=width,
        config=context.config.of_layer(spot.layer),
        head_rows=context.widths.get((spot.layer, "o")),
        inner_rows=None if spot.rule.stacked else context.widths.get((spot.layer, "down")),
        maybe_conv1d=context.conv1d or not context.stored,
    )
    return split_rows(split, fused) or {spot.rule.role: None}
