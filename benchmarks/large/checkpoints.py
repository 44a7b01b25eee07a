"""Checkpoints of the shape of large models, written tensor by tensor in bounded memory.

A base is a window of a pool of normal numbers for every matrix; a fine-tune is the base plus an
update of decaying spectrum and some noise, rounded to bfloat16 as trainers store it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

SHARD_BYTES = 5 * 10**9
"""The largest shard, as transformers saves them."""

UPDATE_RANK = 32
UPDATE_SIZE = 0.01
"""|ΔW| / |W| of every matrix, beside rounding to bfloat16, which is 0.0017."""

ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model of some published size consists of.

    Attributes:
        layers: How many there are.
        matrices: Of one layer, by the name within it: dimensions.
        vocabulary: Rows of the embeddings and of the head.
        config: What config.json says.
    """

    layers: int
    matrices: Mapping[str, tuple[int, ...]]
    vocabulary: int
    config: Mapping[str, object]

    @property
    def hidden(self) -> int:
        """Columns of the embeddings."""
        return int(str(self.config["hidden_size"]))

    def tensors(self, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every tensor in the order in which transformers saves them."""
        yield "model.embed_tokens.weight", (self.vocabulary, self.hidden)
        for layer in range(layers):
            for name, dims in self.matrices.items():
                yield f"model.layers.{layer}.{name}", dims
            for name in ("input_layernorm", "post_attention_layernorm"):
                yield f"model.layers.{layer}.{name}.weight", (self.hidden,)
        yield "model.norm.weight", (self.hidden,)
        yield "lm_head.weight", (self.vocabulary, self.hidden)


def _attention(hidden: int, key_rows: int) -> dict[str, tuple[int, ...]]:
    return {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.k_proj.weight": (key_rows, hidden),
        "self_attn.v_proj.weight": (key_rows, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
    }


def _llama(hidden: int, key_rows: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        **_attention(hidden, key_rows),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def _mixtral(hidden: int, key_rows: int, inner: int, experts: int) -> dict[str, tuple[int, ...]]:
    """As published: a tensor for every matrix of every expert."""
    place = "block_sparse_moe"
    return {
        **_attention(hidden, key_rows),
        f"{place}.gate.weight": (experts, hidden),
        **{
            f"{place}.experts.{expert}.{name}.weight": dims
            for expert in range(experts)
            for name, dims in (
                ("w1", (inner, hidden)),
                ("w2", (hidden, inner)),
                ("w3", (inner, hidden)),
            )
        },
    }


def _stacked(hidden: int, key_rows: int, inner: int, experts: int) -> dict[str, tuple[int, ...]]:
    """As transformers 5 keeps them: the experts of a layer in two tensors."""
    return {
        **_attention(hidden, key_rows),
        "mlp.gate.weight": (experts, hidden),
        "mlp.experts.gate_up_proj": (experts, 2 * inner, hidden),
        "mlp.experts.down_proj": (experts, hidden, inner),
    }


def _config(kind: str, hidden: int, heads: int, key_heads: int) -> dict[str, object]:
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
    }


SHAPES = {
    "llama-8b": Shape(32, _llama(4096, 1024, 14336), 128_256, _config("llama", 4096, 32, 8)),
    "mixtral-8x7b": Shape(
        32,
        _mixtral(4096, 1024, 14336, 8),
        32_000,
        _config("mixtral", 4096, 32, 8) | {"num_local_experts": 8},
    ),
    "mixtral-8x7b-stacked": Shape(
        32,
        _stacked(4096, 1024, 14336, 8),
        32_000,
        _config("mixtral", 4096, 32, 8) | {"num_local_experts": 8},
    ),
    "tiny": Shape(2, _llama(64, 32, 128), 100, _config("llama", 64, 4, 2)),
    "tiny-moe": Shape(
        2, _mixtral(64, 32, 96, 4), 100, _config("mixtral", 64, 4, 2) | {"num_local_experts": 4}
    ),
    "tiny-moe-stacked": Shape(
        2, _stacked(64, 32, 96, 4), 100, _config("mixtral", 64, 4, 2) | {"num_local_experts": 4}
    ),
}


def write_pair(folder: Path, shape: Shape, layers: int) -> None:
    """`base` and `tuned`, sharded, in bfloat16; nothing where they are there already."""
    done = folder / "pair.json"
    wanted = json.dumps([layers, dict(shape.config)])
    if done.exists() and done.read_text("utf-8") == wanted:
        return
    pool = _Pool(max(math.prod(dims) for _, dims in shape.tensors(layers)))
    base = CheckpointWriter(folder / "base", shape, layers)
    tuned = CheckpointWriter(folder / "tuned", shape, layers)
    for number, (name, dims) in enumerate(shape.tensors(layers)):
        rows = _matrix_rows(pool, number, name, dims)
        for base_rows, tuned_rows in rows:
            base.append(name, base_rows)
            tuned.append(name, tuned_rows)
    base.close()
    tuned.close()
    done.write_text(wanted, "utf-8")


def write_headers(folder: Path, shape: Shape, layers: int) -> None:
    """A checkpoint whose files have headers and holes in place of content."""
    CheckpointWriter(folder, shape, layers).close()


class _Pool:
    """Normal numbers; matrices are windows of them."""

    def __init__(self, largest: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._numbers = torch.randn(largest + (1 << 20), generator=generator).mul_(0.02).bfloat16()

    def window(self, number: int, start: int, stop: int) -> torch.Tensor:
        shift = number * 7919 % (1 << 20)
        return self._numbers[shift + start : shift + stop]


def _matrix_rows(
    pool: _Pool, number: int, name: str, dims: tuple[int, ...]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Some rows of the base and of its fine-tune, again and again until the tensor's end."""
    columns = dims[-1]
    n_rows = math.prod(dims[:-1])
    generator = torch.Generator().manual_seed(number)
    is_matrix = len(dims) > 1 and ".layers." in name
    right = torch.randn(UPDATE_RANK, columns, generator=generator)
    right /= torch.arange(1, UPDATE_RANK + 1)[:, None]
    # a row of left @ right has the variance Σ 1/k²
    scale = UPDATE_SIZE * 0.02 / math.sqrt(sum(k**-2 for k in range(1, UPDATE_RANK + 1)))
    for start in range(0, n_rows, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, n_rows)
        rows = pool.window(number, start * columns, stop * columns).view(stop - start, columns)
        if not is_matrix:
            yield rows, rows
            continue
        left = torch.randn(stop - start, UPDATE_RANK, generator=generator)
        yield rows, (rows.float() + scale * (left @ right)).bfloat16()


class CheckpointWriter:
    """A sharded checkpoint in bfloat16; its tensors are appended in order, some rows at a time."""

    def __init__(self, folder: Path, shape: Shape, layers: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = {**shape.config, "num_hidden_layers": layers}
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        self._shards = _shards(list(shape.tensors(layers)))
        self._paths = [
            folder / f"model-{number:05d}-of-{len(self._shards):05d}.safetensors"
            for number in range(1, len(self._shards) + 1)
        ]
        weight_map = {}
        for path, shard in zip(self._paths, self._shards, strict=True):
            path.write_bytes(_header(shard))
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size + sum(map(_size, shard.values())))
            weight_map |= dict.fromkeys(shard, path.name)
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
        self._at = 0
        self._file = self._paths[0].open("r+b")
        self._file.seek(len(_header(self._shards[0])))

    def append(self, name: str, rows: torch.Tensor) -> None:
        """Write the next rows of the tensor of that name."""
        if name not in self._shards[self._at]:
            self._file.close()
            self._at += 1
            self._file = self._paths[self._at].open("r+b")
            self._file.seek(len(_header(self._shards[self._at])))
        self._file.write(rows.contiguous().view(torch.uint8).numpy().data)

    def close(self) -> None:
        self._file.close()


def _size(dims: tuple[int, ...]) -> int:
    return 2 * math.prod(dims)


def _shards(tensors: list[tuple[str, tuple[int, ...]]]) -> list[dict[str, tuple[int, ...]]]:
    """The tensors in order, as many in a file as `SHARD_BYTES` allow."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    for name, dims in tensors:
        if shards[-1] and sum(map(_size, shards[-1].values())) + _size(dims) > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = dims
    return shards


def _header(shard: Mapping[str, tuple[int, ...]]) -> bytes:
    """Of a safetensors file: eight bytes of length, and JSON, aligned to eight bytes."""
    entries: dict[str, object] = {}
    start = 0
    for name, dims in shard.items():
        stop = start + _size(dims)
        entries[name] = {"dtype": "BF16", "shape": dims, "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
