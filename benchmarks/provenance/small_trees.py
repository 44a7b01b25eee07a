"""Trees of a small network, trained in memory: hundreds of them, to calibrate lineages on.

The base has 4 layers of width 64 and is trained first, on the classes of all text sets at once.
Trees, optimiser, data and round trips are those of `trees.py`.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification, set_seed

from deltadex.indexer.delta import RELATIVE_ROUNDING, DenseDelta, MatrixUpdate
from deltadex.indexer.fingerprint import LinearPool, sketch_recipe
from deltadex.provenance.lineage.descent import Updates
from deltadex.records import Slot

from ..families.base import base_folder
from ..families.text_sets import CUTS, read_set
from ..families.training import steps
from .trees import Node, Shape, int8_round_trip, plan_tree

SHAPES: tuple[Shape, ...] = ("wide", "chains", "random", "star")
LAYERS, WIDTH = 4, 64
BASE_STEPS, BASE_RATE, BASE_BATCH = 400, 1e-3, 32
ROLES = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "o",
    "intermediate.dense": "up",
    "output.dense": "down",
}
RANK = 8
Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class SmallTree:
    """A tree's models and what is known of their updates, a row a model."""

    nodes: list[Node]
    updates: Updates


@dataclass(slots=True)
class Nursery:
    """The base, the texts and the tokenizer that all small trees share."""

    texts: Path
    base: Weights

    @classmethod
    def open(cls, texts: Path) -> Nursery:
        torch.set_num_threads(1)
        nursery = cls(texts, {})
        set_seed(0)
        rows = [(text, f"{name} {label}") for name in CUTS for text, label in read_set(texts, name)]
        classes = sorted({label for _, label in rows})
        model = _network(len(classes))
        labels = [classes.index(label) for _, label in rows]
        sentences = [text for text, _ in rows]
        rng = np.random.default_rng(0)
        steps(model, _tokenizer(), sentences, labels, rng, BASE_STEPS, BASE_RATE, BASE_BATCH)
        nursery.base = _body(model)
        return nursery

    def tree(self, shape: Shape, seed: int) -> SmallTree:
        """The same for the same seed."""
        nodes = plan_tree(shape, seed)
        weights: dict[str, Weights] = {}
        for node in nodes:
            weights[node.name] = self._make(node, weights)
        return SmallTree(nodes, _updates(self.base, nodes, weights))

    def _make(self, node: Node, made: Mapping[str, Weights]) -> Weights:
        parents = [made[name] for name in node.parents] or [self.base]
        first = parents[0]
        match node.form:
            case "copy":
                return first
            case "bfloat16":
                return {name: value.bfloat16() for name, value in first.items()}
            case "int8":
                return {name: int8_round_trip(value) for name, value in first.items()}
            case "merge":
                pairs = list(zip(parents, node.weights, strict=True))
                return {name: sum(w * p[name].float() for p, w in pairs) for name in first}
        return self._train(node, first)

    def _train(self, node: Node, start: Weights) -> Weights:
        rows = read_cached(self.texts, node.texts)
        classes = sorted({label for _, label in rows})
        set_seed(node.seed)
        model = _network(len(classes))
        model.load_state_dict({n: v.float() for n, v in start.items()}, strict=False)
        model.bert.embeddings.requires_grad_(False)  # most of its parameters, and in no slot
        if node.form != "full":
            from peft import LoraConfig, TaskType, get_peft_model

            settings = LoraConfig(
                task_type=TaskType.SEQ_CLS, r=RANK, lora_alpha=16, target_modules=["query", "value"]
            )
            model = get_peft_model(model, settings)
        elif node.frozen:
            model.bert.encoder.layer[: node.frozen].requires_grad_(False)
        labels = [classes.index(label) for _, label in rows]
        sentences = [text for text, _ in rows]
        rng = np.random.default_rng(node.seed)
        steps(model, _tokenizer(), sentences, labels, rng, node.steps, node.rate, 8)
        if node.form != "full":
            model = model.merge_and_unload()
        body = _body(model)
        return {n: v.bfloat16() for n, v in body.items()} if node.half else body


@cache
def read_cached(texts: Path, name: str) -> list[tuple[str, str]]:
    return read_set(texts, name)


@cache
def _tokenizer() -> object:
    return AutoTokenizer.from_pretrained(base_folder())


def _network(n_classes: int) -> torch.nn.Module:
    return BertForSequenceClassification(
        BertConfig(
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            intermediate_size=4 * WIDTH,
            max_position_embeddings=64,
            num_labels=n_classes,
        )
    )


def _body(model: torch.nn.Module) -> Weights:
    return {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if name.startswith("bert.")
    }


def _updates(base: Weights, nodes: list[Node], weights: Mapping[str, Weights]) -> Updates:
    recipe = sketch_recipe(16)
    slots = [(layer, name) for layer in range(LAYERS) for name in ROLES]
    norms = np.zeros((len(nodes), len(slots)))
    rounding = np.zeros(len(nodes))
    pooled, layers = [], []
    for row, node in enumerate(nodes):
        pool = LinearPool(recipe)
        for column, (layer, name) in enumerate(slots):
            key = f"bert.encoder.layer.{layer}.{name}.weight"
            own, first = weights[node.name][key], base[key]
            started = first.to(own.dtype).float()
            delta = min(own.float() - first, own.float() - started, key=torch.linalg.norm)
            if not delta.any():
                continue
            if node.form != "adapter":
                rounding[row] += (RELATIVE_ROUNDING[own.dtype] * float(first.norm())) ** 2
            norms[row, column] = float(delta.double().norm())
            slot = Slot("encoder", layer, ROLES[name])
            shape = (delta.shape[0], delta.shape[1])
            update = MatrixUpdate(
                slot=slot,
                part="",
                delta=DenseDelta(delta),
                shape=shape,
                noise_norm=0.0,
                weight_norm=None,
            )
            features = pool.features(update)
            assert features is not None
            pool.take(slot, features)
        sketch = pool.sketch()
        pooled.append(sketch.pooled)
        zero = np.zeros(256, dtype=np.float32)
        layers.append([sketch.layers.get(("encoder", layer), zero) for layer in range(LAYERS)])
    squares = (norms**2).reshape(len(nodes), LAYERS, -1).sum(2)
    return Updates(
        np.array(pooled, dtype=np.float32),
        np.array(layers, dtype=np.float32),
        squares,
        rounding,
        norms,
    )


def write_trees(out: Path, texts: Path, seeds: range) -> None:
    """Write a tree a seed, of the three shapes in turn; those that are there are left alone."""
    out.mkdir(parents=True, exist_ok=True)
    nursery = Nursery.open(texts)
    for seed in seeds:
        shape = SHAPES[seed % len(SHAPES)]
        path = out / f"{shape}-{seed}.pkl"
        if not path.exists():
            path.write_bytes(pickle.dumps(nursery.tree(shape, seed)))
            print(path, flush=True)
