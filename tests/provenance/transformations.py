"""What people do to a model's weights, and decoys of the same config.

Every transformation is a function of a model, its tensors and its config, and gives one as
transformers would save it. Where one of `CASES` preserves the model's function, it does so exactly
up to the rounding of float32.
"""

from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import torch
from factories import in_order

# How a family names its tensors. `norms` are in a layer; `tail`: matrices outside of layers that
# read the residual stream.
BERT = SimpleNamespace(
    layer="encoder.layer.",
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
    rotary=False,
)
LLAMA = SimpleNamespace(
    layer="model.layers.",
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

    state: dict
    config: dict

    @property
    def names(self):
        return LLAMA if self.config["model_type"] == "llama" else BERT

    @property
    def layers(self):
        return self.config["num_hidden_layers"]

    @property
    def heads(self):
        return self.config["num_attention_heads"]

    @property
    def kv_heads(self):
        return self.config.get("num_key_value_heads", self.heads)

    def prefix(self, layer):
        return f"{self.names.layer}{layer}."

    def with_state(self, changed, **config):
        return replace(self, state=self.state | changed, config={**self.config, **config})


def keep_layers(model, *, order):
    """A model of the named layers, in this order: some dropped, repeated or interleaved."""
    config = {**model.config, "num_hidden_layers": len(order)}
    return replace(model, state=in_order(model.state, order), config=config)


def permute_neurons(model, *, seed=1):
    """The neurons of every feed-forward block in another order, one for each layer."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    for layer in range(model.layers):
        start = model.prefix(layer)
        down = f"{start}{names.down}.weight"
        order = torch.randperm(model.state[down].shape[1], generator=generator)
        changed[down] = model.state[down][:, order]
        for up in names.ups:
            for name in _parts(model.state, f"{start}{up}"):
                changed[name] = model.state[name][order]
    return model.with_state(changed)


def _parts(state, module):
    """The names of its weight, and of its bias where it has one."""
    return [name for name in (f"{module}.weight", f"{module}.bias") if name in state]


def _heads(tensor, heads):
    """(heads, rows of a head, columns); a bias has one column."""
    return tensor.reshape(heads, tensor.shape[0] // heads, -1)


def permute_heads(model, *, seed=2):
    """The attention heads of every layer in another order; those that share keys stay together."""
    names, generator, changed = model.names, torch.Generator().manual_seed(seed), {}
    group = model.heads // model.kv_heads
    for layer in range(model.layers):
        start = model.prefix(layer)
        keys = torch.randperm(model.kv_heads, generator=generator)
        queries = (keys[:, None] * group + torch.arange(group)).flatten()
        for role, order in ((names.q, queries), (names.k, keys), (names.v, keys)):
            for name in _parts(model.state, f"{start}{role}"):
                old = model.state[name]
                changed[name] = _heads(old, len(order))[order].reshape(old.shape)
        o = f"{start}{names.o}.weight"
        changed[o] = _heads(model.state[o].T, len(queries))[queries].flatten(0, 1).T
    return model.with_state(changed)


def transform_queries_and_keys(model, *, seed=3):
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
            for name in _parts(model.state, f"{start}{role}"):
                old = model.state[name]
                turned = applied @ _heads(old, len(applied)).double()
                changed[name] = turned.reshape(old.shape).float()
    return model.with_state(changed)


def _mixing(n, size, generator, *, rotary):
    """(n, size, size) float64 matrices of moderate condition, other than orthogonal ones."""
    scale = 0.5 + 1.5 * torch.rand((n, size), generator=generator, dtype=torch.float64)
    if not rotary:
        left, right = (_orthogonal(size, generator, n) for _ in range(2))
        return left * scale[:, None, :] @ right
    half = size // 2
    angle = 2 * torch.pi * torch.rand((n, half), generator=generator, dtype=torch.float64)
    cos, sin = (torch.diag_embed(f(angle) * scale[:, :half]) for f in (torch.cos, torch.sin))
    return torch.cat([torch.cat([cos, -sin], 2), torch.cat([sin, cos], 2)], 1)


def _orthogonal(size, generator, n=1):
    normal = torch.randn((n, size, size), generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(normal)
    return q * r.diagonal(dim1=1, dim2=2).sign()[:, None, :]


def transform_residual(model, turn, *, fold, order=None):
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
            for name in _parts(state, f"{start}{role}"):
                state[name] = (turn @ state[name].double()).float()
    if order is not None:
        for norm in _norms(model):
            for name in _parts(state, norm):
                state[name] = state[name][order]
    return model.with_state(state, tie_word_embeddings="lm_head.weight" not in state)


def _norms(model):
    yield from model.names.outer_norms
    for layer in range(model.layers):
        yield from (f"{model.prefix(layer)}{norm}" for norm in model.names.norms)


def fold_gains(model):
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


def permute_residual(model, *, signs=False, seed=5):
    """Another order of the residual stream. `signs`: half of it negated, which RMSNorm admits."""
    width, generator = model.config["hidden_size"], torch.Generator().manual_seed(seed)
    order = torch.randperm(width, generator=generator)
    turn = torch.eye(width, dtype=torch.float64)[order]
    if signs:
        turn *= (2 * torch.randint(0, 2, (width, 1), generator=generator) - 1).double()
    return transform_residual(model, turn, fold=False, order=order)


def rotate_residual(model, *, seed=6):
    """Gains folded, then a dense rotation, as QuaRot's (Ashkboos et al. 2024)."""
    generator = torch.Generator().manual_seed(seed)
    turn = _orthogonal(model.config["hidden_size"], generator)[0]
    return transform_residual(model, turn, fold=True)


def shuffle(model, *, by, seed=8):
    """All matrices' entries shuffled, or `row-order`, `column-order`: whole rows or columns."""
    generator = torch.Generator().manual_seed(seed)

    def shuffled(matrix):
        if by == "row-order":
            return matrix[torch.randperm(len(matrix), generator=generator)]
        if by == "column-order":
            return matrix[:, torch.randperm(matrix.shape[1], generator=generator)]
        order = torch.randperm(matrix.numel(), generator=generator)
        return matrix.flatten()[order].reshape(matrix.shape)

    changed = {name: shuffled(t) for name, t in model.state.items() if t.ndim == 2}
    return model.with_state(changed)


def embeddings_on(layers, base):
    """The base's embeddings and outer norms on another model's layers."""
    kept = {name: t for name, t in base.state.items() if not name.startswith(base.names.layer)}
    return layers.with_state(kept)


def chain(*steps):
    def apply(model):
        for step in steps:
            model = step(model)
        return model

    return apply


FFN, HEADS, PERMUTED, ROTATED = (
    "FFN neurons permuted",
    "heads permuted",
    "residual stream permuted",
    "rotated",
)
DUPLICATED, DROPPED = (0, 1, 2, 3, 2, 3, 4, 5), (0, 1, 3, 5)
_ALL = chain(permute_neurons, permute_heads, transform_queries_and_keys, permute_residual)

CASES = {
    "all": (_ALL, (FFN, HEADS, PERMUTED, "queries and keys"), None),
    "residual-signs": (partial(permute_residual, signs=True), (PERMUTED, "signs"), None),
    "duplicated+heads+residual": (
        chain(partial(keep_layers, order=DUPLICATED), permute_heads, permute_residual),
        (HEADS, PERMUTED),
        DUPLICATED,
    ),
    "rotated+all": (
        chain(permute_neurons, permute_heads, transform_queries_and_keys, rotate_residual),
        (FFN, HEADS, ROTATED),
        None,
    ),
    "dropped+rotated": (
        chain(partial(keep_layers, order=DROPPED), rotate_residual),
        (ROTATED,),
        DROPPED,
    ),
}
"""What is done to a model, the words that an answer must have of it, and the base's layer of each
layer; None for all in their places."""


def decoys(base, fresh):
    """Models of the base's config that hold none of its layers; `fresh`: of another seed."""
    return {
        "fresh": fresh,
        "embeddings-on-fresh": embeddings_on(fresh, base),
        "shuffled-whole": shuffle(base, by="whole"),
        "shuffled-row-order": shuffle(base, by="row-order"),
        "embeddings-on-column-order": embeddings_on(shuffle(base, by="column-order"), base),
        "fresh+residual": permute_residual(embeddings_on(fresh, base)),
    }
