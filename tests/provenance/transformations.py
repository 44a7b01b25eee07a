"""What people do to a model's weights, and decoys of the same config.

Every transformation is a function of a model, its tensors and its config, and gives one as
transformers would save it. `CASES` has each alone and some combined, with the layers and the
changes that are true of it; `decoys` have the base's config, and no layer of it. Where a case
preserves the model's function, it does so exactly up to the rounding of float32.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

State = dict[str, torch.Tensor]
BERT_LAYER, LLAMA_LAYER = "encoder.layer.", "model.layers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How a family names its tensors. `gains`: the norm before each group of matrices; `tail`:
    matrices outside of layers that read the residual stream; `norms` are in a layer."""

    layer: str
    words: str
    embeddings: tuple[str, ...]
    q: str
    k: str
    v: str
    o: str
    ups: tuple[str, ...]
    down: str
    norms: tuple[str, ...]
    outer_norms: tuple[str, ...]
    tail: tuple[str, ...]
    rotary: bool = False


BERT = Names(
    layer=BERT_LAYER,
    words="embeddings.word_embeddings.weight",
    embeddings=("embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"),
    q="attention.self.query",
    k="attention.self.key",
    v="attention.self.value",
    o="attention.output.dense",
    ups=("intermediate.dense",),
    down="output.dense",
    norms=("attention.output.LayerNorm", "output.LayerNorm"),
    outer_norms=("embeddings.LayerNorm",),
    tail=("pooler.dense.weight",),
)
LLAMA = Names(
    layer=LLAMA_LAYER,
    words="model.embed_tokens.weight",
    embeddings=(),
    q="self_attn.q_proj",
    k="self_attn.k_proj",
    v="self_attn.v_proj",
    o="self_attn.o_proj",
    ups=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
    norms=("input_layernorm", "post_attention_layernorm"),
    outer_norms=("model.norm",),
    tail=("lm_head.weight",),
    rotary=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A checkpoint in memory."""

    state: State
    config: Mapping[str, object]

    @property
    def names(self) -> Names:
        return LLAMA if self.config["model_type"] == "llama" else BERT

    @property
    def layers(self) -> int:
        return self.number("num_hidden_layers")

    @property
    def heads(self) -> int:
        return self.number("num_attention_heads")

    @property
    def kv_heads(self) -> int:
        return int(str(self.config.get("num_key_value_heads", self.heads)))

    def number(self, key: str) -> int:
        return int(str(self.config[key]))

    def prefix(self, layer: int) -> str:
        return f"{self.names.layer}{layer}."

    def with_state(self, changed: State, **config: object) -> Model:
        return replace(self, state=self.state | changed, config={**self.config, **config})


def write_model(model: Model, folder: Path) -> None:
    half_made = folder.with_name(f".{folder.name}")
    shutil.rmtree(half_made, ignore_errors=True)
    half_made.mkdir(parents=True)
    tensors = {name: tensor.contiguous().clone() for name, tensor in model.state.items()}
    save_file(tensors, half_made / "model.safetensors", metadata={"format": "pt"})
    (half_made / "config.json").write_text(json.dumps(dict(model.config), indent=1), "utf-8")
    half_made.rename(folder)


def layer_matrices(model: Model) -> list[str]:
    return [
        name
        for name, tensor in model.state.items()
        if name.startswith(model.names.layer) and tensor.ndim == 2
    ]


def _each_matrix(model: Model, change: Callable[[torch.Tensor], torch.Tensor]) -> Model:
    return model.with_state({name: change(model.state[name]) for name in layer_matrices(model)})


def store_as(model: Model, dtype: torch.dtype) -> Model:
    return replace(model, state={name: t.to(dtype) for name, t in model.state.items()})


def round_to_int8(model: Model) -> Model:
    """Dequantised 8-bit weights, scaled by row (LLM.int8, Dettmers et al. 2022)."""

    def rounded(matrix: torch.Tensor) -> torch.Tensor:
        scale = matrix.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        return (matrix / scale).round() * scale

    return _each_matrix(model, rounded)


_NF4_BELOW = (-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105, 0.0)
_NF4_ABOVE = (0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.562617, 0.7229568, 1.0)
NF4 = torch.tensor((*_NF4_BELOW, *_NF4_ABOVE))
"""The levels of NF4 (Dettmers et al. 2023, appendix E)."""


def round_to_4_bits(model: Model) -> Model:
    """Dequantised NF4, scaled by blocks of 64."""

    def rounded(matrix: torch.Tensor) -> torch.Tensor:
        blocks = matrix.reshape(-1, 64)
        scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-12)
        between = (NF4[1:] + NF4[:-1]) / 2
        return (NF4[torch.bucketize(blocks / scale, between)] * scale).reshape(matrix.shape)

    return _each_matrix(model, rounded)


def prune(model: Model, *, share: float) -> Model:
    """The smallest entries of every layer matrix set to zero."""

    def pruned(matrix: torch.Tensor) -> torch.Tensor:
        least = matrix.abs().flatten().kthvalue(max(1, int(share * matrix.numel()))).values
        return matrix * (matrix.abs() > least)

    return _each_matrix(model, pruned)


def keep_layers(model: Model, *, order: Sequence[int]) -> Model:
    """A model of the named layers, in this order: some dropped, repeated or interleaved."""
    layer = model.names.layer
    state = {name: t for name, t in model.state.items() if not name.startswith(layer)}
    for place, source in enumerate(order):
        start = model.prefix(source)
        for name, tensor in model.state.items():
            if name.startswith(start):
                state[f"{model.prefix(place)}{name.removeprefix(start)}"] = tensor
    config = {**model.config, "num_hidden_layers": len(order)}
    return replace(model, state=state, config=config)


def choose_tokens(model: Model, *, rows: Sequence[int]) -> Model:
    """A vocabulary of the named rows of the old one, in this order; -1: a new row, at random."""
    names = model.names
    old = model.state[names.words]
    generator = torch.Generator().manual_seed(0)
    new = torch.randn((len(rows), old.shape[1]), generator=generator) * old.std()
    known = torch.tensor(rows) >= 0
    changed = {}
    for name in (names.words, "lm_head.weight"):
        if name in model.state:
            chosen = model.state[name][torch.tensor(rows).clamp(min=0)]
            changed[name] = torch.where(known[:, None], chosen, new)
    return model.with_state(changed, vocab_size=len(rows))


def grow_vocabulary(model: Model, *, by: int) -> Model:
    size = model.number("vocab_size")
    return choose_tokens(model, rows=[*range(size), *[-1] * by])


def cut_vocabulary(model: Model, *, share: float, shuffled: bool = False) -> Model:
    """A random share of the tokens, in their order or in a random one."""
    size = model.number("vocab_size")
    rows = np.random.default_rng(0).permutation(size)[: int(share * size)]
    return choose_tokens(model, rows=[int(row) for row in (rows if shuffled else np.sort(rows))])


def permute_neurons(model: Model, *, seed: int = 1) -> Model:
    """The neurons of every feed-forward block in another order, one for each layer."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    for layer in range(model.layers):
        start = model.prefix(layer)
        down = f"{start}{names.down}.weight"
        order = torch.randperm(model.state[down].shape[1], generator=generator)
        changed[down] = model.state[down][:, order]
        for up in names.ups:
            for name in (f"{start}{up}.weight", f"{start}{up}.bias"):
                if name in model.state:
                    changed[name] = model.state[name][order]
    return model.with_state(changed)


def _heads(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """(heads, rows of a head, columns); a bias has one column."""
    return tensor.reshape(heads, tensor.shape[0] // heads, -1)


def permute_heads(model: Model, *, seed: int = 2) -> Model:
    """The attention heads of every layer in another order; those that share keys stay together."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    group = model.heads // model.kv_heads
    for layer in range(model.layers):
        start = model.prefix(layer)
        keys = torch.randperm(model.kv_heads, generator=generator)
        queries = (keys[:, None] * group + torch.arange(group)).flatten()
        for role, order in ((names.q, queries), (names.k, keys), (names.v, keys)):
            for name in (f"{start}{role}.weight", f"{start}{role}.bias"):
                if name in model.state:
                    old = model.state[name]
                    changed[name] = _heads(old, len(order))[order].reshape(old.shape)
        o = f"{start}{names.o}.weight"
        changed[o] = _heads(model.state[o].T, len(queries))[queries].flatten(0, 1).T
    return model.with_state(changed)


def transform_queries_and_keys(model: Model, *, seed: int = 3) -> Model:
    """Q → RQ and K → R⁻ᵀK with an invertible R of each key head, biases too. With rotary positions
    R turns and scales each pair of dimensions, which is what commutes with them."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    group = model.heads // model.kv_heads
    for layer in range(model.layers):
        start = model.prefix(layer)
        size = model.state[f"{start}{names.k}.weight"].shape[0] // model.kv_heads
        maps = _mixing(model.kv_heads, size, generator, rotary=names.rotary)
        for role, applied in (
            (names.q, maps.repeat_interleave(group, 0)),
            (names.k, torch.linalg.inv(maps).mT),
        ):
            for name in (f"{start}{role}.weight", f"{start}{role}.bias"):
                if name in model.state:
                    old = model.state[name]
                    turned = applied @ _heads(old, len(applied)).double()
                    changed[name] = turned.reshape(old.shape).float()
    return model.with_state(changed)


def _mixing(n: int, size: int, generator: torch.Generator, *, rotary: bool) -> torch.Tensor:
    """(n, size, size) float64 matrices of moderate condition, other than orthogonal ones."""
    scale = 0.5 + 1.5 * torch.rand((n, size), generator=generator, dtype=torch.float64)
    if not rotary:
        left, right = (_orthogonal(size, generator, n) for _ in range(2))
        return left * scale[:, None, :] @ right
    half = size // 2
    angle = 2 * torch.pi * torch.rand((n, half), generator=generator, dtype=torch.float64)
    cos, sin = (torch.diag_embed(f(angle) * scale[:, :half]) for f in (torch.cos, torch.sin))
    return torch.cat([torch.cat([cos, -sin], 2), torch.cat([sin, cos], 2)], 1)


def _orthogonal(size: int, generator: torch.Generator, n: int = 1) -> torch.Tensor:
    normal = torch.randn((n, size, size), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    return q * r.diagonal(dim1=1, dim2=2).sign()[:, None, :]


def transform_values(model: Model, *, seed: int = 4) -> Model:
    """V → RV and O → OR⁻¹ inside heads, with an orthogonal R of each value head, biases too."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    group = model.heads // model.kv_heads
    for layer in range(model.layers):
        start = model.prefix(layer)
        size = model.state[f"{start}{names.v}.weight"].shape[0] // model.kv_heads
        maps = _orthogonal(size, generator, model.kv_heads)
        for name in (f"{start}{names.v}.weight", f"{start}{names.v}.bias"):
            if name in model.state:
                old = model.state[name]
                turned = maps @ _heads(old, model.kv_heads).double()
                changed[name] = turned.reshape(old.shape).float()
        o = f"{start}{names.o}.weight"
        columns = _heads(model.state[o].T, model.heads).double()
        turned = (maps.repeat_interleave(group, 0) @ columns).flatten(0, 1).T
        changed[o] = turned.float()
    return model.with_state(changed)


def transform_residual(
    model: Model, turn: torch.Tensor, *, fold: bool, order: torch.Tensor | None = None
) -> Model:
    """The residual stream x → Qx. `turn`: Q, (width, width) float64; `fold`: norm gains are
    multiplied into the matrices behind them first, as a dense Q wants (RMSNorm only); `order`: of
    the norms' own entries, where Q permutes."""
    names = model.names
    state = dict(fold_gains(model).state if fold else model.state)
    for name in (names.words, *names.embeddings, *names.tail):
        if name in state:
            state[name] = (state[name].double() @ turn.T).float()
    for layer in range(model.layers):
        start = model.prefix(layer)
        for role in (names.q, names.k, names.v, *names.ups):
            name = f"{start}{role}.weight"
            state[name] = (state[name].double() @ turn.T).float()
        for role in (names.o, names.down):
            for name in (f"{start}{role}.weight", f"{start}{role}.bias"):
                if name in state:
                    state[name] = (turn @ state[name].double()).float()
    if order is not None:
        for norm in _norms(model):
            for name in (f"{norm}.weight", f"{norm}.bias"):
                if name in state:
                    state[name] = state[name][order]
    return model.with_state(state, tie_word_embeddings="lm_head.weight" not in state)


def _norms(model: Model) -> Iterator[str]:
    yield from model.names.outer_norms
    for layer in range(model.layers):
        yield from (f"{model.prefix(layer)}{norm}" for norm in model.names.norms)


def fold_gains(model: Model) -> Model:
    """Every RMSNorm's gain multiplied into the matrices that read it, the head's of its own."""
    names, state = model.names, dict(model.state)
    state["lm_head.weight"] = state.get("lm_head.weight", state[names.words])
    readers = {(names.outer_norms[0], ""): ("lm_head",)}
    for layer in range(model.layers):
        start = model.prefix(layer)
        readers[names.norms[0], start] = (names.q, names.k, names.v)
        readers[names.norms[1], start] = names.ups
    for (norm, start), roles in readers.items():
        gain = state[f"{start}{norm}.weight"]
        state[f"{start}{norm}.weight"] = torch.ones_like(gain)
        for role in roles:
            state[f"{start}{role}.weight"] = state[f"{start}{role}.weight"] * gain
    return model.with_state(state, tie_word_embeddings=False)


def permute_residual(model: Model, *, signs: bool = False, seed: int = 5) -> Model:
    """Another order of the residual stream. `signs`: half of it negated, which RMSNorm admits."""
    width, generator = model.number("hidden_size"), torch.Generator().manual_seed(seed)
    order = torch.randperm(width, generator=generator)
    turn = torch.eye(width, dtype=torch.float64)[order]
    if signs:
        turn *= (2 * torch.randint(0, 2, (width, 1), generator=generator) - 1).double()
    return transform_residual(model, turn, fold=False, order=order)


def rotate_residual(model: Model, *, seed: int = 6) -> Model:
    """Gains folded, then a dense rotation, as QuaRot's (Ashkboos et al. 2024)."""
    generator = torch.Generator().manual_seed(seed)
    turn = _orthogonal(model.number("hidden_size"), generator)[0]
    return transform_residual(model, turn, fold=True)


def add_noise(model: Model, *, share: float, seed: int = 7) -> Model:
    """A random update, `share` of each layer matrix's norm."""
    generator = torch.Generator().manual_seed(seed)

    def noisy(matrix: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(matrix.shape, generator=generator)
        return matrix + noise * (share * matrix.norm() / noise.norm())

    return _each_matrix(model, noisy)


def shuffle(model: Model, *, by: str, seed: int = 8) -> Model:
    """All matrices' entries shuffled: each `row` by itself, each `column`, or the `whole` matrix;
    `row-order` and `column-order` move whole rows and columns. Vectors stay."""
    generator = torch.Generator().manual_seed(seed)

    def shuffled(matrix: torch.Tensor) -> torch.Tensor:
        if by == "column":
            return matrix.gather(0, torch.rand(matrix.shape, generator=generator).argsort(0))
        if by == "row":
            return matrix.gather(1, torch.rand(matrix.shape, generator=generator).argsort(1))
        if by == "row-order":
            return matrix[torch.randperm(len(matrix), generator=generator)]
        if by == "column-order":
            return matrix[:, torch.randperm(matrix.shape[1], generator=generator)]
        order = torch.randperm(matrix.numel(), generator=generator)
        return matrix.flatten()[order].reshape(matrix.shape)

    changed = {name: shuffled(t) for name, t in model.state.items() if t.ndim == 2}
    return model.with_state(changed)


def embeddings_on(layers: Model, base: Model) -> Model:
    """The base's embeddings and outer norms on another model's layers."""
    kept = {name: t for name, t in base.state.items() if not name.startswith(base.names.layer)}
    return layers.with_state(kept)


def chain(*steps: Callable[[Model], Model]) -> Callable[[Model], Model]:
    def apply(model: Model) -> Model:
        for step in steps:
            model = step(model)
        return model

    return apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One transformation. `changes`: what is true of it, by words that an answer must have;
    `order`: the base's layer of each layer, None for all in their places; `same`: whether outputs
    stay; `rms`: whether it needs RMSNorm; `rebased`: made from a fine-tune where one is there."""

    apply: Callable[[Model], Model]
    changes: tuple[str, ...] = ()
    order: tuple[int, ...] | None = None
    same: bool = False
    rms: bool = False
    rebased: bool = False


FFN, HEADS, KEYS = "FFN neurons permuted", "heads permuted", "queries and keys"
VALUES, PERMUTED, SIGNED, ROTATED = "values", "residual stream permuted", "signs", "rotated"
DUPLICATED, INTERLEAVED, DROPPED = (0, 1, 2, 3, 2, 3, 4, 5), (0, 2, 1, 3, 2, 4, 3, 5), (0, 1, 3, 5)
_ALL = chain(permute_neurons, permute_heads, transform_queries_and_keys, permute_residual)

CASES: Mapping[str, Case] = {
    "copy": Case(apply=lambda model: model, same=True),
    "fine-tune": Case(apply=lambda model: model, rebased=True),
    "noise-20": Case(apply=partial(add_noise, share=0.2)),
    "bfloat16": Case(apply=partial(store_as, dtype=torch.bfloat16)),
    "int8": Case(apply=round_to_int8),
    "4-bit": Case(apply=round_to_4_bits),
    "pruned-10": Case(apply=partial(prune, share=0.1)),
    "pruned-30": Case(apply=partial(prune, share=0.3)),
    "pruned-50": Case(apply=partial(prune, share=0.5)),
    "dropped": Case(apply=partial(keep_layers, order=DROPPED), order=DROPPED),
    "duplicated": Case(apply=partial(keep_layers, order=DUPLICATED), order=DUPLICATED),
    "interleaved": Case(apply=partial(keep_layers, order=INTERLEAVED), order=INTERLEAVED),
    "grown": Case(apply=partial(grow_vocabulary, by=64), changes=("vocabulary grown",)),
    "cut": Case(apply=partial(cut_vocabulary, share=0.5), changes=("vocabulary cut",)),
    "cut-shuffled": Case(
        apply=partial(cut_vocabulary, share=0.5, shuffled=True), changes=("vocabulary cut",)
    ),
    "ffn": Case(apply=permute_neurons, changes=(FFN,), same=True),
    "heads": Case(apply=permute_heads, changes=(HEADS,), same=True),
    "keys": Case(apply=transform_queries_and_keys, changes=(KEYS,), same=True),
    "values": Case(apply=transform_values, changes=(VALUES,), same=True),
    "residual": Case(apply=permute_residual, changes=(PERMUTED,), same=True),
    "residual-signs": Case(
        apply=partial(permute_residual, signs=True),
        changes=(PERMUTED, SIGNED),
        same=True,
        rms=True,
    ),
    "rotated": Case(apply=rotate_residual, changes=(ROTATED,), same=True, rms=True),
    "ffn+heads+keys": Case(
        apply=chain(permute_neurons, permute_heads, transform_queries_and_keys),
        changes=(FFN, HEADS),
        same=True,
    ),
    "all": Case(apply=_ALL, changes=(FFN, HEADS, PERMUTED), same=True),
    "fine-tune+all": Case(apply=_ALL, changes=(FFN, HEADS, PERMUTED), rebased=True),
    "fine-tune+residual": Case(apply=permute_residual, changes=(PERMUTED,), rebased=True),
    "dropped+residual": Case(
        apply=chain(partial(keep_layers, order=DROPPED), permute_residual),
        changes=(PERMUTED,),
        order=DROPPED,
    ),
    "duplicated+heads+residual": Case(
        apply=chain(partial(keep_layers, order=DUPLICATED), permute_heads, permute_residual),
        changes=(HEADS, PERMUTED),
        order=DUPLICATED,
    ),
    "grown+all": Case(
        apply=chain(partial(grow_vocabulary, by=64), _ALL),
        changes=("vocabulary grown", FFN, HEADS, PERMUTED),
    ),
    "4-bit+all": Case(apply=chain(_ALL, round_to_4_bits), changes=(FFN, HEADS, PERMUTED)),
    "pruned-50+residual": Case(
        apply=chain(partial(prune, share=0.5), permute_residual), changes=(PERMUTED,)
    ),
    "fine-tune+rotated": Case(apply=rotate_residual, changes=(ROTATED,), rms=True, rebased=True),
    "rotated+ffn+heads": Case(
        apply=chain(permute_neurons, permute_heads, rotate_residual),
        changes=(FFN, HEADS, ROTATED),
        same=True,
        rms=True,
    ),
    "rotated+4-bit": Case(
        apply=chain(rotate_residual, round_to_4_bits), changes=(ROTATED,), rms=True
    ),
    "rotated+all": Case(
        apply=chain(permute_neurons, permute_heads, transform_queries_and_keys, rotate_residual),
        changes=(FFN, HEADS, ROTATED),
        same=True,
        rms=True,
    ),
    "dropped+rotated": Case(
        apply=chain(partial(keep_layers, order=DROPPED), rotate_residual),
        changes=(ROTATED,),
        order=DROPPED,
        rms=True,
    ),
}


def decoys(base: Model, fresh: Model, twin: Model) -> dict[str, Model]:
    """Models of the base's config that hold none of its layers. `fresh`: a fresh initialisation
    with short training; `twin`: another seed's training, as long as there is one."""
    return {
        "fresh": fresh,
        "twin": twin,
        "embeddings-on-fresh": embeddings_on(fresh, base),
        "embeddings-on-twin": embeddings_on(twin, base),
        "shuffled-whole": shuffle(base, by="whole"),
        "shuffled-rows": shuffle(base, by="row"),
        "shuffled-columns": shuffle(base, by="column"),
        "shuffled-row-order": shuffle(base, by="row-order"),
        "shuffled-column-order": shuffle(base, by="column-order"),
        "embeddings-on-row-order": embeddings_on(shuffle(base, by="row-order"), base),
        "embeddings-on-column-order": embeddings_on(shuffle(base, by="column-order"), base),
        "embeddings-on-shuffled": embeddings_on(shuffle(base, by="whole"), base),
        "fresh+residual": permute_residual(embeddings_on(fresh, base)),
    }


def cases(base: Model, tuned: Model | None = None) -> Iterator[tuple[str, Case, Model]]:
    """Every case that the base admits, made from it, or from a fine-tune of it."""
    for name, case in CASES.items():
        if case.rms and not base.names.rotary:
            continue
        if not case.rebased:
            yield name, case, case.apply(base)
        elif tuned is not None:
            yield name, case, case.apply(tuned)
