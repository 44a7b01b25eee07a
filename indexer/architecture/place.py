"""The tensors of a checkpoint, or the modules of an adapter, assigned to slots by `roles.json`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal

from ...errors import ModelError
from ...records import Slot
from ..untrusted_text import name_some
from .placement import (
    AttentionConfig,
    Fused,
    Key,
    PlacedModel,
    Placement,
    Rows,
    read_attention_config,
    sort_key,
    split_rows,
)

NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
"""A whole component of a name that is a number; written `N` in the table."""

LONGEST = 1000
"""Characters in a name beyond which it is no layer's; searching longer ones would cost."""

MAX_PATHS = 8
"""Layer paths that are looked for in one name; those of real models have at most three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the tensors with one suffix inside a numbered layer are.

    Attributes:
        suffix: Matches all that follows the layer number, numbers written `N`.
        within: The only layer path it holds for; "" = any.
        role: A role of `records.ROLES`; of a fused matrix, its role when left whole.
        part: "" or the piece of the slot; "expert" is completed by the expert's number.
        split: A layout of `layouts.py`, or one for each model type; "" = not fused.
        stack: The stack that this suffix alone identifies; "" = the path decides.
        conv1d: Stored in × out where the model uses GPT-2's Conv1D.
        stacked: All experts in one tensor, whose name has no `.weight`.
    """

    suffix: re.Pattern[str]
    within: str = ""
    role: str = ""
    part: str = ""
    split: str | Mapping[str, str] = ""
    stack: str = ""
    conv1d: bool = False
    stacked: bool = False


class Rules(tuple[Rule, ...]):
    """Rules of which the first that holds for a suffix wins."""

    def below(self, path: str) -> Callable[[str], Rule | None]:
        """The search among the rules that hold below a layer path: one expression of all their
        suffixes, as most suffixes of an unknown model fit none of a hundred."""
        holding = [rule for rule in self if rule.within in ("", path)]
        any_of_them = re.compile(
            "|".join(f"(?P<r{n}>{rule.suffix.pattern})" for n, rule in enumerate(holding)) or "(?!)"
        )

        def first(suffix: str) -> Rule | None:
            match = any_of_them.fullmatch(suffix)
            # the group of the rule closes last
            return holding[int((match.lastgroup or "r0")[1:])] if match else None

        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`roles.json` with its patterns compiled.

    Attributes:
        layers: Stack of each layer path, in the file's order.
        beside_others: Those of them whose models have further stacks.
        layer_pattern: Finds a layer path and its number.
        stack_of_owner: For paths that several architectures share, by the model type or by
            the word before the path.
        stack_of_embedding: The same, by an embedding beside the layers.
        rules: First match wins.
        ignored: Suffixes that are no slot, such as routers.
        ignored_word: A component of a name that makes it no slot.
        attention_word: Found in the names of layers that attend, whatever their tradition.
    """

    layers: Mapping[str, str]
    beside_others: frozenset[str]
    layer_pattern: re.Pattern[str]
    stack_of_owner: Mapping[str, str]
    stack_of_embedding: Mapping[str, str]
    rules: Rules
    ignored: Rules
    ignored_word: re.Pattern[str]
    attention_word: re.Pattern[str]


@cache
def table() -> Table:
    text = resources.files(__package__).joinpath("roles.json").read_text(encoding="utf-8")
    raw = json.loads(text)
    layers = {entry["path"]: entry["stack"] for entry in raw["layers"]}
    paths = "|".join(re.escape(path).replace("N", "[0-9]{1,6}") for path in layers)
    return Table(
        layers=layers,
        beside_others=frozenset(e["path"] for e in raw["layers"] if e.get("beside_others")),
        layer_pattern=re.compile(rf"(?<![^.])(?P<path>{paths})\.(?P<layer>[0-9]{{1,6}})\."),
        stack_of_owner=raw["stack_of_owner"],
        stack_of_embedding=raw["stack_of_embedding"],
        rules=Rules(map(_rule, raw["rules"])),
        ignored=Rules(map(_rule, raw["ignored_suffixes"])),
        ignored_word=re.compile("|".join(raw["ignored_words"]), re.IGNORECASE),
        attention_word=re.compile(raw["attention_words"], re.IGNORECASE),
    )


@cache
def _search(kind: Literal["rules", "ignored"], path: str) -> Callable[[str], Rule | None]:
    rules: Rules = getattr(table(), kind)
    return rules.below(path)


@lru_cache(maxsize=4096)
def find_rule(path: str, suffix: str) -> Rule | None:
    """The first rule for a suffix below a layer path; numbers written `N` in both."""
    return _search("rules", path)(suffix)


@lru_cache(maxsize=4096)
def is_ignored(path: str, suffix: str) -> bool:
    """Whether a suffix below a layer path is known to be no slot; numbers written `N`."""
    if _search("ignored", path)(suffix) is not None:
        return True
    return any(table().ignored_word.fullmatch(word) for word in suffix.split("."))


def without_numbers(name: str) -> str:
    """`experts.7.w1` → `experts.N.w1`."""
    return NUMBER.sub("N", name)


def _rule(entry: dict[str, Any]) -> Rule:
    fields = {key: value for key, value in entry.items() if key not in ("suffix", "in")}
    pattern = re.compile(entry["suffix"].replace(".", r"\."))
    return Rule(suffix=pattern, within=entry.get("in", ""), **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A tensor that a rule places, before its stack is known.

    Attributes:
        prefix: All before the layer path, with its last dot.
        path: Layer path, numbers written `N`.
        groups: Numbers inside the layer path: ALBERT's shared group.
        layer: The number after the layer path.
        suffix: All after the layer number, numbers written `N`.
        module: The name without prefix and `.weight`.
        expert: The last number in the suffix, or -1.
    """

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
        rule = find_rule(path, suffix)
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
    """Where a name's layer number is, whether or not a rule matches the rest.

    Numbers in path and suffix are written `N`; the path is "" if it is not in the table.
    """

    before: str
    path: str
    suffix: str


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
    """Every end of a module's path that begins with a whole component, the longest first.

    Args:
        longest: Characters of an end; longer ones are left out.
    """
    if len(module) <= longest:
        start = 0
    elif not (start := module.find(".", len(module) - longest - 1) + 1):
        return
    yield module[start:]
    while start := module.find(".", start) + 1:
        yield module[start:]


def _layers(module: str) -> Iterator[re.Match[str]]:
    """Layer paths from the left, so that `encoder.layer` comes before its own `layer`."""
    pattern = table().layer_pattern
    match = pattern.search(module) if len(module) <= LONGEST else None
    for _ in range(MAX_PATHS):
        if match is None:
            return
        yield match
        match = pattern.search(module, match.start() + 1)


Shape = tuple[int, ...]
WEIGHT = ".weight"
ATTENTION_ROLES = frozenset(("q", "k", "v", "qkv", "o", "cross_q", "cross_k", "cross_v", "cross_o"))

Stacks = Mapping[str, Sequence[Spot]]

MAX_EXPERTS = 4096
"""Of one tensor: each is a matrix of its own, so that a small file could hold any number; the
largest mixtures have some hundreds."""

OPEN_PATH = "layers"
"""A layer path of encoders, decoders and towers alike."""

QUERY_WIDTH = "self_attn.o_proj"
"""The output projection whose width is the number of query rows of a fused matrix beside it."""


def place(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of a checkpoint's tensors, whatever their prefix and order.

    Args:
        shapes: As stored, by full name; matrices end in `.weight`, stacked experts do not.
        config: The model's config.json; only interleaved layouts need it.
    """
    return _place(shapes, config, stored=True)


def place_modules(shapes: Mapping[str, Shape], config: Mapping[str, object] | None) -> PlacedModel:
    """The slots of an adapter's modules; some layers or none may be there.

    Without a config, a `c_attn` with three times as many rows as columns is GPT-2's.

    Args:
        shapes: (out, in) by module path, as named on disk or in memory by any transformers;
            stacked experts (expert, out, in).
        config: The base's config.json, where it is at hand.
    """
    return _place(shapes, config, stored=False)


def _place(
    shapes: Mapping[str, Shape], config: Mapping[str, object] | None, *, stored: bool
) -> PlacedModel:
    facts = read_attention_config(config)
    spots, unknown, rest = _locate_all(shapes, stored=stored)
    stacks = gather_stacks(spots, shapes.keys(), facts)
    placements = [
        placement
        for stack, group in stacks.items()
        for placement in place_stack(stack, group, facts, stored=stored)
    ]
    unknown += _unknown(rest, shapes, stored=stored)
    placed = PlacedModel(
        placements=tuple(sorted(placements, key=sort_key)),
        ignored=tuple(sorted(set(rest) - set(unknown))),
        unknown=tuple(sorted(unknown)),
    )
    _refuse_doubles(placed.placements)
    if stored:
        _require_attention(placed)
    return placed


def _locate_all(
    shapes: Mapping[str, Shape], *, stored: bool
) -> tuple[list[Spot], list[str], list[str]]:
    """(placeable, known by name but of the wrong kind, all others)."""
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


def _is_whole_matrix(spot: Spot, *, stored: bool) -> bool:
    """Whether a tensor has the dimensions that its rule wants; where it is stored, none is 0."""
    if len(spot.shape) != (3 if spot.rule.stacked else 2) or (stored and 0 in spot.shape):
        return False
    return not spot.rule.stacked or spot.shape[0] <= MAX_EXPERTS


def _unknown(names: Iterable[str], shapes: Mapping[str, Shape], *, stored: bool) -> list[str]:
    """Layer matrices that no rule knows; in a checkpoint of layers that attend alone, as heads may
    be numbered too."""
    numbers = {name: find_number(name.removesuffix(WEIGHT)) for name in shapes}
    attending = _attending(numbers.values())
    return [
        name
        for name in names
        if len(shapes[name]) in (2, 3)
        and sum(size > 1 for size in shapes[name]) > 1
        and _is_in_layer(numbers[name], attending, any_known_path=not stored)
    ]


def layer_modules(modules: Iterable[str]) -> frozenset[str]:
    """The module paths inside numbered layers, be they placeable or unknown; no head is among them,
    no embedding, and nothing that is known to be no slot."""
    numbers = {module: find_number(module) for module in modules}
    attending = _attending(numbers.values())
    return frozenset(
        module
        for module, number in numbers.items()
        if _is_in_layer(number, attending, any_known_path=True)
        or locate(module, module, ()) is not None
    )


def require_known_slots(
    adapter: PlacedModel, shapes: Mapping[str, tuple[int, int]], base_name: str
) -> None:
    """Pass if most matrices that an adapter changes may be those of a base by what its models have.

    A role or layer that no model of the family changed yet may be there. A stack may, where models
    of that architecture have several.

    Args:
        shapes: (out, in) by slot, of the family's models; none where too little is known.

    Raises:
        ModelError: `other-base`.
    """
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
    """Whether a matrix contradicts what is known of a base."""
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


def _attending(numbers: Iterable[Numbered | None]) -> set[str]:
    """What comes before the layer numbers of layers that attend."""
    attends = table().attention_word.search
    return {number.before for number in numbers if number and attends(number.suffix)}


def _is_in_layer(number: Numbered | None, attending: set[str], *, any_known_path: bool) -> bool:
    """Whether it is a layer's matrix; `any_known_path`: also where no attention is at hand."""
    if number is None:
        return False
    counts = number.before in attending or (number.path != "" and any_known_path)
    return counts and not is_ignored(number.path, number.suffix)


def _refuse_doubles(placements: Sequence[Placement]) -> None:
    tensors: dict[Key, list[str]] = defaultdict(list)
    for placement in placements:
        tensors[placement.key].append(placement.tensor)
    for (slot, part), names in tensors.items():
        if len(names) > 1:
            where = f"{slot}.{part}" if part else str(slot)
            line = f"{name_some(names)} all fill {where}: expected one tensor"
            raise ModelError("unknown-architecture", line)


def _require_attention(placed: PlacedModel) -> None:
    if any(p.slot.role in ATTENTION_ROLES for p in placed.placements):
        return
    placed.require_known()
    seen = name_some(placed.ignored[:2]) or "none"
    raise ModelError(
        "no-attention",
        f"has no attention matrix among its tensors (it has {seen}); only models with "
        "attention layers can be fingerprinted",
    )


def gather_stacks(spots: Iterable[Spot], names: Collection[str], config: AttentionConfig) -> Stacks:
    """The spots of each stack; `names`: all tensors, since an embedding may decide the stack."""
    groups: dict[tuple[str, str], list[Spot]] = defaultdict(list)
    for spot in spots:
        groups[spot.prefix, spot.path].append(spot)
    stacks: dict[str, list[Spot]] = {}
    for group in groups.values():
        stack = _stack(group, names, config)
        if stack in stacks:
            both = name_some([stacks[stack][0].tensor, group[0].tensor])
            line = f"{both} belong to two {stack} stacks: expected one model in the file"
            raise ModelError("unknown-architecture", line)
        stacks[stack] = group
    return stacks


def _stack(group: Sequence[Spot], names: Collection[str], config: AttentionConfig) -> str:
    """By a suffix or a path of that stack alone, else by embedding, prefix or model type."""
    first = group[0]
    by_suffix = next((spot.rule.stack for spot in group if spot.rule.stack), "")
    default = by_suffix or table().layers[first.path]
    if by_suffix or first.path not in ("layers", "encoder.layers"):
        return default
    for embedding, stack in table().stack_of_embedding.items():
        if first.path == "encoder.layers" and f"{first.prefix}{embedding}.weight" in names:
            return stack
    by_owner = table().stack_of_owner
    word = first.prefix.rstrip(".").rpartition(".")[2]
    return by_owner.get(word) or by_owner.get(config.model_type or "") or default


@dataclass(frozen=True, slots=True, kw_only=True)
class StackContext:
    """What is known of one stack from all its tensors.

    Attributes:
        stored: Shapes are as on disk; otherwise they are (out, in) already.
        conv1d: The stack uses GPT-2's Conv1D, stored in × out.
        inner_group: ALBERT's layers in one shared group.
        shapes: Of every placed tensor, by layer and suffix.
    """

    stack: str
    config: AttentionConfig
    stored: bool
    conv1d: bool
    inner_group: int
    shapes: Mapping[tuple[int, str], tuple[int, ...]]


def place_stack(
    stack: str, spots: Sequence[Spot], config: AttentionConfig, *, stored: bool
) -> Iterator[Placement]:
    """The placements of one stack, in no particular order."""
    context = StackContext(
        stack=stack,
        config=config,
        stored=stored,
        # q, k and v together are wider than the input, so only in × out is flat
        conv1d=stored and any(s.rule.split == "c-attn" and s.shape[0] < s.shape[1] for s in spots),
        inner_group=config.inner_group or 1 + max(spot.layer for spot in spots),
        shapes={(spot.layer, spot.suffix): spot.shape for spot in spots},
    )
    for spot in spots:
        yield from _stack_placements(spot, context)


def _stack_placements(spot: Spot, context: StackContext) -> Iterator[Placement]:
    """One placement for each role and expert of a tensor."""
    if spot.rule.stacked:
        transposed = context.stored and _has_flat_experts(spot, context)
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
    """Rows of each role; a fused matrix of unknown layout stays whole."""
    split = spot.rule.split
    if not split:
        return {spot.rule.role: None}
    if spot.rule.stacked and (transposed or context.config.text_model_type == "gpt_oss"):
        split = "gate-up-interleaved"
    output = context.shapes.get((spot.layer, QUERY_WIDTH))
    fused = Fused(
        out=out,
        width=width,
        config=context.config,
        head_rows=output[1] if output else None,
        maybe_conv1d=context.conv1d or not context.stored,
    )
    return split_rows(split, fused) or {spot.rule.role: None}
