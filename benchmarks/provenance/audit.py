"""How many edits along one direction an audit finds, and what it says of ordinary models.

    python -m benchmarks.provenance.audit --models FOLDER [--tunes 6] [--only minilm|causal]

FOLDER has ordinary fine-tunes of all-MiniLM-L6-v2 (`python -m benchmarks.families`). Edits are made
by formula: ΔW = −λ r rᵀW with a random r on o and down, in every layer or in the middle third; or
as Heretic does, on rows of unit length that get their norms back, as the best rank-3 update. On top
is the update of an ordinary full fine-tune, of these matrices 1, 2 or 4 times as long as the edit
(0: none). Each edited model is saved, indexed beside the ordinary ones, and audited. The causal
model is a Llama of 6 layers, trained here for some hundred steps on the bytes of these docs, and
so are its fine-tunes.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import deltadex as dx
from deltadex.indexer import Placement, resolve_base
from deltadex.provenance.audit.one_direction import WRITERS

from ..families.base import base_folder

LENGTHS = (0, 1, 2, 4)
WEIGHTS = "model.safetensors"
Tensors = Mapping[str, torch.Tensor]


def edit(weight: torch.Tensor, direction: torch.Tensor, strength: float) -> torch.Tensor:
    """−λ r rᵀW."""
    return -strength * torch.outer(direction, direction @ weight)


def edit_keeping_norms(
    weight: torch.Tensor, direction: torch.Tensor, strength: float
) -> torch.Tensor:
    """As Heretic's `full` row normalisation: rank 3, rows keep their norms."""
    norms = weight.norm(dim=1, keepdim=True)
    rows = weight / norms
    rows = torch.nn.functional.normalize(rows + edit(rows, direction, strength), dim=1)
    u, sigma, v = torch.linalg.svd(rows * norms - weight, full_matrices=False)
    return (u[:, :3] * sigma[:3]) @ v[:3]


def writers(catalog: dx.Database, base: Path) -> tuple[Tensors, list[Placement]]:
    placed = resolve_base(catalog._catalog, str(base)).weights().placed.placements
    return load_file(base / WEIGHTS), [p for p in placed if p.slot.role in WRITERS]


def edited(
    base: Tensors,
    places: Sequence[Placement],
    tune: Tensors,
    layers: range,
    strength: float,
    length: int,
    keeps_norms: bool,
    seed: int,
) -> Tensors:
    """The base, edited, with a fine-tune's update on top."""
    generator = torch.Generator().manual_seed(seed)
    width = len(base[places[0].tensor])
    direction = torch.nn.functional.normalize(torch.randn(width, generator=generator), dim=0)
    make = edit_keeping_norms if keeps_norms else edit
    edits = {
        p.tensor: make(base[p.tensor].float(), direction, strength)
        for p in places
        if p.slot.layer in layers
    }
    updates = {name: tune[name].float() - base[name].float() for name in base if name in tune}
    size = sum(float(e.square().sum()) for e in edits.values()) ** 0.5
    tuned = sum(float(updates[p.tensor].square().sum()) for p in places) ** 0.5
    scale = length * size / tuned
    return {
        name: (
            value + scale * updates.get(name, torch.zeros(())) + edits.get(name, torch.zeros(()))
            if value.is_floating_point()
            else value
        )
        for name, value in base.items()
    }


def save(tensors: Tensors, folder: Path, base: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(base / "config.json", folder)
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)


def measure(db: dx.Database, base: Path, tunes: Sequence[Path]) -> Iterator[dict[str, object]]:
    weights, places = writers(db, base)
    n_layers = 1 + max(p.slot.layer for p in places)
    ranges = {"all": range(n_layers), "third": range(n_layers // 3, 2 * n_layers // 3)}
    updates = [_named_as(weights, load_file(tune / WEIGHTS)) for tune in tunes]
    for keeps_norms in (False, True):
        for where, layers in ranges.items():
            for strength in (1.0, 0.5):
                row: dict[str, object] = {
                    "form": "norms kept, rank 3" if keeps_norms else "plain",
                    "layers": where,
                    "strength": strength,
                }
                for length in LENGTHS:
                    row[f"x{length}"] = _detect(
                        db, base, weights, places, updates, layers, strength, length, keeps_norms
                    )
                yield row


def _named_as(base: Tensors, tune: Tensors) -> Tensors:
    """A fine-tune's tensors under the base's names: models with a head have a prefix."""
    ends = {name.partition(".")[2]: value for name, value in tune.items()}
    return {**{name: ends[name] for name in base if name in ends}, **tune}


def _detect(
    db: dx.Database,
    base: Path,
    weights: Tensors,
    places: Sequence[Placement],
    tunes: Sequence[Tensors],
    layers: range,
    strength: float,
    length: int,
    keeps_norms: bool,
) -> str:
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        names = [f"edited-{seed}" for seed in range(len(tunes))]
        for seed, (name, tune) in enumerate(zip(names, tunes, strict=True)):
            folder = Path(temporary) / name
            made = edited(weights, places, tune, layers, strength, length, keeps_norms, seed)
            save(made, folder, base)
        db.index(base, temporary)
        table = db.audit(kind="edit", where="model LIKE 'edited-%'")
        found += [finding["detail"] for finding in table]
        for name in names:
            db.remove(name, base=str(base))
    right = sum(f" {len(layers)} of " in detail for detail in found)
    shares = [float(detail.split(", ")[1].split(" %")[0]) for detail in found if " %" in detail]
    middle = f"{statistics.median(shares):.0f} %" if shares else "–"
    return f"{len(found)}/{len(names)}, layers {right}/{len(found)}, {middle}"


def train_causal(
    texts: Sequence[str], folder: Path, n_tunes: int, steps: int
) -> tuple[Path, list[Path]]:
    """A small Llama trained on bytes of texts, and full fine-tunes on a part of them each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config)
    _train(model, "\n".join(texts).encode(), steps, 2e-3)
    model.save_pretrained(folder / "base")
    tunes = []
    for number in range(n_tunes):
        model = LlamaForCausalLM.from_pretrained(folder / "base")
        _train(model, "\n".join(texts[number::n_tunes]).encode(), steps // 6, 5e-4)
        tunes.append(folder / "tunes" / f"tune-{number}")
        model.save_pretrained(tunes[-1])
    return folder / "base", tunes


def _train(model: torch.nn.Module, data: bytes, steps: int, rate: float) -> None:
    tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8).long()
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        starts = torch.randint(len(tokens) - 64, (16,))
        batch = torch.stack([tokens[start : start + 64] for start in starts.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def show(title: str, rows: Sequence[Mapping[str, object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(map(str, row.values()))} |", flush=True)


def ordinary(db: dx.Database) -> None:
    """What an audit says of models that nobody edited."""
    document = db.audit().to_json()
    counts = Counter(finding["kind"] for finding in document["findings"])
    print(f"\n{document['models']} ordinary models: {json.dumps(counts)}")
    for finding in document["findings"]:
        print(f"  {finding['kind']}: {finding['model']}: {finding['detail']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--tunes", type=int, default=6)
    parser.add_argument("--steps", type=int, default=400, help="Of the causal base's training.")
    parser.add_argument("--only", choices=("minilm", "causal"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.platform()}, torch {torch.__version__}, seed 0")
    if given.only != "causal":
        base = base_folder()
        full = sorted(p.parent for p in given.models.glob(f"*/*/{WEIGHTS}"))
        with dx.open() as db:
            db.index(base, given.models)
            ordinary(db)
            tunes = full[:: max(1, len(full) // given.tunes)][: given.tunes]
            show("MiniLM", list(measure(db, base, tunes)))
    if given.only != "minilm":
        texts = [p.read_text("utf-8") for p in sorted(Path(dx.__file__).parent.rglob("*.md"))]
        lines = [line for text in texts for line in text.splitlines() if line]
        with tempfile.TemporaryDirectory() as temporary, dx.open() as db:
            base, tunes = train_causal(lines, Path(temporary), given.tunes, given.steps)
            db.index(base, tunes[0].parent)
            ordinary(db)
            show("Llama of 6 layers", list(measure(db, base, tunes)))


if __name__ == "__main__":
    main()
