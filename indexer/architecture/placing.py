"""The tensors of a checkpoint, or the modules of an adapter, assigned to slots."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...errors import ModelError
from ...records import ROLE_NAME, STACK_NAME, Slot
from ..untrusted_text import name_some
from . import names
from .fused import AttentionConfig, Fused, Rows, read_attention_config, split_rows
from .placement import Key, PlacedModel, Placement, label, sort_key

Shape = tuple[int, ...]

MAX_EXPERTS = 4096
"""The most of one tensor: each is a matrix of its own, so that a small file could hold any number;
the largest mixtures have some hundreds."""

HEADS_OF_CONFIG = ("encoder", "decoder", "text")


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
        for placement in _Stack(stack, group, facts, stored=stored).placements()
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
) -> tuple[list[names.Spot], list[str], list[str]]:
    spots, odd, rest = [], [], []
    for name, shape in shapes.items():
        spot = names.locate(name, name.removesuffix(names.WEIGHT), shape)
        if spot is None or (stored and spot.rule.stacked == name.endswith(names.WEIGHT)):
            rest.append(name)
        elif not _is_whole_matrix(spot, stored=stored):
            odd.append(name)
        else:
            spots.append(spot)
    return spots, odd, rest


def _spot_by_name(tensor: str, shape: Shape, *, stored: bool) -> names.Spot | None:
    """The place of a matrix in a numbered block that no rule names: its role is its name inside the
    block, its part the number of its expert, or of a block inside this one. None for factors, and
    where it has no such place."""
    module = tensor.removesuffix(names.WEIGHT)
    block = None if names.has_factor(module) else _BLOCK.fullmatch(module[_last_block(module) :])
    if block is None:
        return None
    rest = _EXPERT.sub(r"\1.\2", block["rest"])
    role = _PART.sub("", rest).strip(".") or block["path"].rpartition(".")[2]
    rule = names.Rule(
        suffix=_BLOCK,
        role=role,
        part=".".join(_PART.findall(rest)),
        conv1d=role.rpartition(".")[2].startswith("c_"),
        stacked=len(shape) == 3,
    )
    spot = names.Spot(
        tensor=tensor,
        shape=shape,
        prefix=module.removesuffix(block[0]),
        path=block["path"],
        groups=(),
        layer=int(block["layer"]),
        suffix=names.without_numbers(block["rest"]),
        module=block[0],
        expert=-1,
        rule=rule,
    )
    return spot if ROLE_NAME.fullmatch(role) and _is_whole_matrix(spot, stored=stored) else None


_EXPERT = re.compile(r"(?<![^.])(experts?)_([0-9]+)(?![^.])")
_PART = re.compile(r"(?:^|(?<=\bexpert\.)|(?<=\bexperts\.))([0-9]+)(?:\.|$)")


def _last_block(module: str) -> int:
    """Where the path of the block begins: of the layer paths that are known the first, or the last
    in a stage, but for sublayers that are numbered in a block (T5's `layer`); else the first
    numbered word."""
    known = list(names.layer_paths(module))
    staged = [m for m in known if m["path"] != "layer" and _STAGE.search(module[: m.start()])]
    if known:
        return (staged[-1] if staged else known[0]).start()
    before = names.numbered_word(module)
    return len(module) if before is None else before.rfind(".") + 1


_BLOCK = re.compile(r"(?P<path>\D[^.]*(?:\.\D[^.]*)*)\.(?P<layer>[0-9]{1,6})\.(?P<rest>.+)")


def _is_whole_matrix(spot: names.Spot, *, stored: bool) -> bool:
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
    tensors: Iterable[str], shapes: Mapping[str, Shape], *, in_any_number: bool = False
) -> list[str]:
    """Those of the tensors, which no rule places, that are a layer's matrices, or factors of an
    adapter's there. A number behind an unknown word is a layer's where several numbers have the
    same tensor, or one has attention, or `in_any_number`."""
    numbers = {name: names.find_number(name.removesuffix(names.WEIGHT)) for name in shapes}
    times = Counter(numbers.values())
    attends = names.table().attention_word.search
    blocks = {
        number.before
        for number, n in times.items()
        if number and (n > 1 or in_any_number or number.path or attends(f"{number}"))
    }
    return [
        name
        for name in tensors
        if (number := numbers[name]) is not None
        and number.before in blocks
        and (
            names.has_factor(number.suffix)
            or (is_matrix(shapes[name]) and _is_in_layer(number))
            or (len(shapes[name]) == 2 and _POINTWISE.search(number.suffix))
        )
    ]


def layer_modules(modules: Iterable[str]) -> frozenset[str]:
    """The module paths inside numbered layers, be they placeable or unknown; no head is among them,
    no embedding, and nothing that is known to be no slot."""
    return frozenset(
        module
        for module in modules
        if _is_in_layer(names.find_number(module)) or names.locate(module, module, ()) is not None
    )


def _is_in_layer(number: names.Numbered | None) -> bool:
    """Whether a matrix is a layer's; heads, which may be numbered too, are not."""
    if number is None or names.is_ignored(number.path, number.suffix):
        return False
    return not any(map(names.table().outside_word.fullmatch, number.before.split(".")))


def _refuse_doubles(placements: Sequence[Placement]) -> None:
    by_key: dict[Key, list[Placement]] = defaultdict(list)
    for placement in placements:
        by_key[placement.key].append(placement)
    for same in by_key.values():
        if len(same) > 1:
            line = f"{name_some([p.tensor for p in same])} all fill {label(same[0])}"
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


def gather_stacks(
    spots: Iterable[names.Spot], tensors: Collection[str], config: AttentionConfig
) -> Mapping[str, Sequence[names.Spot]]:
    groups: dict[tuple[str, str], list[names.Spot]] = defaultdict(list)
    for spot in spots:
        groups[spot.prefix, spot.path].append(spot)
    stacks: dict[str, list[names.Spot]] = {}
    for group in sorted(groups.values(), key=_closeness):
        stack = _stack(group, tensors, config)
        if stack in stacks:
            stack = _own_stack(group[0])
        if stack in stacks:
            stack = _stack_name(f"{group[0].prefix}{group[0].path}")
        stacks.setdefault(stack, []).extend(group)
    return stacks


def _closeness(group: Sequence[names.Spot]) -> tuple[int, str, str]:
    """Of several stacks of one kind, the first is the one with the fewest words of its own before
    its layers, as the language model's beside its towers'."""
    words = group[0].prefix.rstrip(".").split(".")
    return sum(word not in names.table().wrappers for word in words), group[0].prefix, group[0].path


def _stack(group: Sequence[names.Spot], tensors: Collection[str], config: AttentionConfig) -> str:
    first = group[0]
    by_suffix = next((spot.rule.stack for spot in group if spot.rule.stack), "")
    default = by_suffix or names.table().layers.get(first.path, "")
    if not default or _STAGE.search(first.prefix):
        return _own_stack(first)
    if by_suffix or first.path not in ("layers", "encoder.layers", "blocks"):
        return default
    for embedding, stack in names.table().stack_of_embedding.items():
        if first.path == "encoder.layers" and f"{first.prefix}{embedding}.weight" in tensors:
            return stack
    by_owner = names.table().stack_of_owner
    owners = (by_owner[w] for w in reversed(first.prefix.split(".")) if w in by_owner)
    return next(owners, "") or by_owner.get(config.model_type or "") or default


_STAGE = re.compile(r"(?<![^.])[^.]*(layer|stage|block|level|group)s?\.[0-9]{1,6}\.$")
"""The end of a prefix in which blocks are numbered stage by stage, `layers.0.` of Swin."""


def _own_stack(first: names.Spot) -> str:
    """The name of a tower or stage: the words that say which it is."""
    if stage := _STAGE.search(first.prefix):
        return _stack_name(f"{stage[0]}{first.path}")
    if first.path not in names.table().layers:
        return _stack_name(first.path)
    own = [word for word in first.prefix.split(".") if word not in names.table().wrappers]
    return _stack_name(own[-1] if own else f"{first.prefix}{first.path}")


def _stack_name(path: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "/", path)
    return name if STACK_NAME.fullmatch(name) else "stack"


class _Stack:
    """All tensors of one stack, in which each tells of the others. `stored`: their shapes are as on
    disk, otherwise (out, in) already."""

    def __init__(
        self, name: str, spots: Sequence[names.Spot], config: AttentionConfig, *, stored: bool
    ) -> None:
        if name not in HEADS_OF_CONFIG:  # the config's heads are the language model's
            config = replace(
                config, n_heads=None, n_kv_heads=None, head_dim=None, by_layer=((), ())
            )
        self.name, self.spots, self.config, self.stored = name, spots, config, stored
        # q, k and v together are wider than the input, so only in × out is flat
        self.conv1d = stored and any(
            s.shape[0] < s.shape[1]
            for s in spots
            if s.rule.split == "c-attn" or (s.rule.conv1d and s.rule.role == "up")
        )
        self.group = config.inner_group or 1 + max(spot.layer for spot in spots)
        self.shapes = {(spot.layer, spot.suffix): spot.shape for spot in spots}
        # columns of a layer's matrix of a role, where it is one and they are known
        self.widths = {
            (spot.layer, spot.rule.role): spot.shape[0 if self.conv1d and spot.rule.conv1d else -1]
            for spot in spots
            if not spot.rule.part and not spot.rule.split and spot.shape[-1]
        }

    def placements(self) -> Iterator[Placement]:
        for spot in self.spots:
            yield from self._placements(spot)

    def _placements(self, spot: names.Spot) -> Iterator[Placement]:
        rule = spot.rule
        if rule.stacked:
            is_flat = rule.part == "expert" and self._has_flat_experts(spot)
            transposed = self.stored and is_flat
        else:
            transposed = self.conv1d and rule.conv1d
        out, width = spot.shape[-2:][::-1] if transposed else spot.shape[-2:]
        layer = spot.layer + (spot.groups[0] * self.group if spot.groups else 0)
        rows_of = self._rows(spot, out, width, transposed)
        for index in range(spot.shape[0]) if rule.stacked else (None,):
            part = rule.part
            if part == "expert":
                part = f"expert.{spot.expert if index is None else index}"
            elif index is not None:
                part = ".".join(filter(None, (part, str(index))))
            for role, rows in rows_of.items():
                chosen = range(out)[rows] if isinstance(rows, slice) else rows
                yield Placement(
                    slot=Slot(self.name, layer, role),
                    part=part,
                    module=spot.module,
                    tensor=spot.tensor,
                    index=index,
                    transposed=transposed,
                    rows=rows,
                    shape=(out if chosen is None else len(chosen), width),
                )

    def _has_flat_experts(self, spot: names.Spot) -> bool:
        """Whether stacked experts are stored in × out, as gpt_oss does: gate_up is twice as long as
        down on the side of the inner width, whichever that is."""
        gate_up = self.shapes.get((spot.layer, "mlp.experts.gate_up_proj"))
        down = self.shapes.get((spot.layer, "mlp.experts.down_proj"))
        if gate_up is None or down is None:
            return self.config.text_model_type == "gpt_oss"
        return gate_up[2] == 2 * down[1] and gate_up[1] == down[2]

    def _rows(
        self, spot: names.Spot, out: int, width: int, transposed: bool
    ) -> Mapping[str, Rows | None]:
        split = spot.rule.split
        if not split:
            return {spot.rule.role: None}
        if spot.rule.stacked and (transposed or self.config.text_model_type == "gpt_oss"):
            split = "gate-up-interleaved"
        fused = Fused(
            out=out,
            width=width,
            config=self.config.of_layer(spot.layer),
            head_rows=self.widths.get((spot.layer, "o")),
            inner_rows=None if spot.rule.stacked else self.widths.get((spot.layer, "down")),
            maybe_conv1d=self.conv1d or not self.stored,
        )
        return split_rows(split, fused) or {spot.rule.role: None}
