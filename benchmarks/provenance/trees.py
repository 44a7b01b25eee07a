"""Trees of real fine-tunes whose descent is known: planned by a seed, trained, indexed, deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

import deltadex as dx

from ..families.base import base_folder
from ..families.text_sets import CUTS, read_set
from ..families.training import steps

Shape = Literal["wide", "chains", "random", "star", "stages"]
Form = Literal["full", "lora", "adapter", "copy", "bfloat16", "int8", "merge"]

TARGETS = ["query", "value"]
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One model of a tree.

    Attributes:
        parents: Names; none for a child of the base. Several are merged linearly, by `weights`.
        texts, seed: Of a training; a decoy shares both with a sibling.
        half: Saved in bfloat16, and its children are trained from that.
        decoy_of: The sibling with the same data and seed.
    """

    name: str
    parents: tuple[str, ...] = ()
    form: Form = "full"
    texts: str = ""
    seed: int = 0
    rate: float = 0.0
    steps: int = 0
    frozen: int = 0
    half: bool = False
    decoy_of: str = ""
    weights: tuple[float, ...] = field(default=())


def plan_tree(shape: Shape, seed: int) -> list[Node]:
    """A tree's models, each after its parents; the same for the same seed.

    `wide` has 4 children and 16 grandchildren, `chains` four chains of five, `random` 20 models
    that each descend from any before; `star` has 20 children of the base, half of them on the
    data of another. All get copies, round trips and merges as leaves, two fine-tunes of merges.
    `stages` is `plan_stages`.
    """
    rng = np.random.default_rng(seed)
    if shape == "stages":
        return plan_stages(rng)
    nodes: list[Node] = []
    if shape == "wide":
        tops = [_child(rng, nodes, None) for _ in range(4)]
        for top in tops:
            for _ in range(4):
                _child(rng, nodes, top)
    elif shape == "chains":
        for _ in range(4):
            last = None
            for _ in range(5):
                last = _child(rng, nodes, last)
    elif shape == "star":
        for _ in range(20):
            _child(rng, nodes, None, shares_data=0.5)
    else:
        for number in range(20):
            several = number > 2 and rng.random() < 0.85
            _child(rng, nodes, nodes[int(rng.integers(len(nodes)))] if several else None)
    nodes += list(_leaves(rng, nodes))
    return nodes


def plan_stages(rng: np.random.Generator) -> list[Node]:
    """Trainings that go on from others, all in float32: with their words and with new ones, with a
    frozen embedding, as LoRA, for long; merges; and siblings of one data set, or of one run."""
    first, second, third = rng.permutation(list(CUTS))[:3].tolist()

    def full(name: str, above: str, texts: str, **numbers: Any) -> Node:
        settings = {"rate": 5e-5, "steps": 12, "seed": int(rng.integers(1 << 30))} | numbers
        return Node(name=name, parents=(above,) if above else (), texts=texts, **settings)

    run = int(rng.integers(1 << 30))
    nodes = [
        full("a", "", first, seed=run),
        full("a-run", "", first, seed=run, steps=20, rate=8e-5, decoy_of="a"),
        full("a-twin", "", first),
        full("b", "", second),
        full("c", "", third, frozen=1),
    ]
    for top in ("a", "b"):
        nodes += [
            full(f"{top}-again", top, first),
            full(f"{top}-new", top, third),
            full(f"{top}-newer", f"{top}-new", second),
            full(f"{top}-frozen", top, third, frozen=1),
            full(f"{top}-lora", top, second, form="lora", rate=1e-3),
            full(f"{top}-tuned", f"{top}-lora", third),
        ]
    nodes += [full("a-long", "a", first, steps=80), full("c-new", "c", second)]
    for name, pair in (("twins", ("a", "a-twin")), ("others", ("a", "b-new"))):
        nodes.append(Node(name=name, parents=pair, form="merge", weights=(0.6, 0.4)))
        nodes.append(full(f"{name}-tuned", name, third))
    return nodes


def _child(
    rng: np.random.Generator, nodes: list[Node], parent: Node | None, shares_data: float = 0.0
) -> Node:
    above = (parent.name,) if parent else ()
    siblings = [node for node in nodes if node.parents == above and node.form == "full"]
    rate = float(np.exp(rng.uniform(np.log(1e-5), np.log(1.5e-4))))
    n_steps = int(rng.integers(5, 21))
    name = f"m{len(nodes):02d}"
    if siblings and rng.random() < 0.4:
        twin = siblings[int(rng.integers(len(siblings)))]
        node = Node(
            name=name,
            parents=above,
            texts=twin.texts,
            seed=twin.seed,
            rate=twin.rate * float(np.exp(rng.uniform(-0.7, 0.7))),
            steps=max(5, int(twin.steps * np.exp(rng.uniform(-0.7, 0.7)))),
            decoy_of=twin.name,
        )
    else:
        own = parent.texts if parent and rng.random() < 0.35 else str(rng.choice(list(CUTS)))
        if siblings and rng.random() < shares_data:
            own = siblings[int(rng.integers(len(siblings)))].texts
        is_lora = rng.random() < 0.25
        lora: Form = "lora" if parent else "adapter"
        node = Node(
            name=name,
            parents=above,
            form=lora if is_lora else "full",
            texts=own,
            seed=int(rng.integers(1 << 30)),
            rate=rate * 20 if is_lora else rate,
            steps=n_steps,
            frozen=3 if not is_lora and rng.random() < 0.15 else 0,
            half=bool(not (is_lora and not parent) and rng.random() < 0.15),
        )
    nodes.append(node)
    return node


def _leaves(rng: np.random.Generator, trained: list[Node]) -> Iterator[Node]:
    full = [node for node in trained if node.form != "adapter"]

    def drawn(n: int) -> tuple[str, ...]:
        return tuple(full[place].name for place in rng.permutation(len(full))[:n].tolist())

    yield Node(name="copy", parents=drawn(1), form="copy")
    exact = [node.name for node in full if not node.half]
    for number, place in enumerate(rng.permutation(len(exact))[:2].tolist()):
        yield Node(name=f"half{number}", parents=(exact[place],), form="bfloat16")
    yield Node(name="int8", parents=drawn(1), form="int8")
    for number in (2, 3):
        parents = drawn(number)
        weights = tuple((rng.dirichlet(np.full(number, 4.0))).tolist())
        name = f"merge{number}"
        yield Node(name=name, parents=parents, form="merge", weights=weights)
        yield Node(
            name=f"tuned{number}",
            parents=(name,),
            texts=str(rng.choice(list(CUTS))),
            seed=int(rng.integers(1 << 30)),
            rate=float(np.exp(rng.uniform(np.log(1e-5), np.log(1.5e-4)))),
            steps=int(rng.integers(5, 21)),
        )


def make_tree(shape: Shape, seed: int, texts: Path, out: Path) -> Path:
    """Train and index a tree; returns its folder, with `catalog.duckdb` and `truth.json`.

    Weights are deleted once they are indexed. A tree that is there is left alone.
    """
    folder = out / f"{shape}-{seed}"
    if (folder / "truth.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    torch.set_num_threads(1)
    base, models = base_folder(), folder / "models"
    nodes = plan_tree(shape, seed)
    for node in nodes:
        _make(node, {other.name: other for other in nodes}, models, base, texts)
    with dx.open(folder / "catalog.duckdb") as db:
        report = db.index(str(base), str(models), workers=1).to_json()
    assert not report["failed"], report["failed"]
    shutil.rmtree(models)
    (folder / "truth.json").write_text(json.dumps([asdict(node) for node in nodes], indent=1))
    return folder


def _make(node: Node, nodes: dict[str, Node], models: Path, base: Path, texts: Path) -> None:
    target = models / node.name
    if node.form in ("full", "lora", "adapter"):
        _train(node, nodes, models, base, texts)
        return
    first = models / node.parents[0]
    target.mkdir()
    shutil.copyfile(first / "config.json", target / "config.json")
    weights = load_file(first / WEIGHTS)
    if node.form == "copy":
        shutil.copyfile(first / WEIGHTS, target / WEIGHTS)
        return
    if node.form == "bfloat16":
        weights = {name: value.bfloat16() for name, value in weights.items()}
    elif node.form == "int8":
        weights = {name: int8_round_trip(value) for name, value in weights.items()}
    else:
        weights = _merged(weights, node, models)
    save_file(weights, target / WEIGHTS, metadata={"format": "pt"})


def int8_round_trip(value: torch.Tensor) -> torch.Tensor:
    if value.ndim != 2:
        return value
    wide = value.float()
    step = wide.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (wide / step).round() * step


def _merged(first: dict[str, Any], node: Node, models: Path) -> dict[str, torch.Tensor]:
    sums = {name: value.float() * node.weights[0] for name, value in first.items()}
    for parent, weight in zip(node.parents[1:], node.weights[1:], strict=True):
        for name, value in load_file(models / parent / WEIGHTS).items():
            if name in sums and sums[name].shape == value.shape:
                sums[name] = sums[name] + weight * value.float()
    return sums


def _train(node: Node, nodes: dict[str, Node], models: Path, base: Path, texts: Path) -> None:
    set_seed(node.seed)
    rng = np.random.default_rng(node.seed)
    rows = read_set(texts, node.texts)
    names = sorted({label for _, label in rows})
    model = _start(node, nodes, models, base, len(names))
    if node.form != "full":
        settings = LoraConfig(
            task_type=TaskType.SEQ_CLS, r=8, lora_alpha=16, target_modules=TARGETS
        )
        model = get_peft_model(model, settings)
    elif node.frozen:
        for frozen in (model.bert.embeddings, *model.bert.encoder.layer[: node.frozen]):
            frozen.requires_grad_(False)
    labels = [names.index(label) for _, label in rows]
    tokenizer = AutoTokenizer.from_pretrained(base)
    sentences = [text for text, _ in rows]
    steps(model, tokenizer, sentences, labels, rng, node.steps, node.rate, 8)
    if node.form == "lora":
        model = model.merge_and_unload()
    if node.half:
        model = model.bfloat16()
    model.save_pretrained(models / node.name)


def _start(
    node: Node, nodes: dict[str, Node], models: Path, base: Path, n_labels: int
) -> torch.nn.Module:
    """The parent's weights, with a new head where the number of classes differs."""
    parent = nodes[node.parents[0]] if node.parents else None
    settings: dict[str, Any] = {
        "num_labels": n_labels,
        "ignore_mismatched_sizes": True,
        "dtype": torch.float32,
    }
    if parent is None:
        return AutoModelForSequenceClassification.from_pretrained(base, **settings)
    folder = models / parent.name
    if parent.form != "adapter":
        return AutoModelForSequenceClassification.from_pretrained(folder, **settings)
    own = load_file(folder / "adapter_model.safetensors")
    head = next(value for name, value in own.items() if name.endswith("classifier.weight"))
    start = AutoModelForSequenceClassification.from_pretrained(
        base, **settings | {"num_labels": len(head)}
    )
    merged = PeftModel.from_pretrained(start, folder).merge_and_unload()
    merged.requires_grad_(True)
    merged.classifier = torch.nn.Linear(merged.config.hidden_size, n_labels)
    merged.config.num_labels = merged.num_labels = n_labels
    return merged
