"""A family of tiny checkpoints, what deltadex computes from it, and the golden files of that.

    python tests/machines/answers.py golden/NAME.npz

writes one for the processor that runs it; `python tests/machines/run.py --golden` does so for each
of the processors in `GOLDEN`. Make them anew when a recipe or a score changes on purpose.
"""

import csv
import hashlib
import math
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from deltadex.indexer import IndexOptions, index_family
from deltadex.search import StoredQuery, clusters, find_similar
from deltadex.search.labelled import LabelledModels, labelled_models
from deltadex.search.layout import axes_of, sample_places
from deltadex.store import Catalog

sys.path.append(str(Path(__file__).parents[1]))

from factories import lora_of, make_checkpoint, write_files

BASE = "example/exact-base"
LAYERS, WIDTH, INNER = 3, 96, 160
SHAPES = {
    **{f"self_attn.{role}_proj": (WIDTH, WIDTH) for role in "qkvo"},
    "mlp.gate_proj": (INNER, WIDTH),
    "mlp.up_proj": (INNER, WIDTH),
    "mlp.down_proj": (WIDTH, INNER),
}
DATASETS = ("wine", "news", "law", "code")
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FORMS = ("float32", "float32-again", *HALVES, "short", "narrow", "merged", "lora", "lora-poor")
"""How each data set's models are stored: four dense updates, one that barely rises above storage
rounding, one whose rank is just what the randomised SVD looks for, an adapter merged into float32,
an adapter, and one whose B has lost half of its rank."""

RANK, TERMS, NARROW = 8, 48, 24


def make_exact_family(folder):
    """Write the base, 36 fine-tunes and `labels.csv` below `folder`; return the base's folder.

    Their bytes are the same on every machine: all numbers are small integers times powers of two,
    taken from SHAKE-256. Only the rounding to a storage type decides any of them, which IEEE 754
    fixes.
    """
    base = {name: integers(f"base/{name}", shape) / 2**12 for name, shape in _matrices()}
    weights = {name: _single(w) for name, w in base.items()}
    made = make_checkpoint(folder / "base", weights, config=_config())
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "dataset", "author", "run"])
        for dataset in DATASETS:
            for number, form in enumerate(FORMS):
                _write(folder / "models" / f"{dataset}-{form}", base, dataset, form)
                writer.writerow([f"models/{dataset}-{form}", dataset, f"author-{number % 5}", ""])
    return made


def _write(folder, base, dataset, form):
    if form.startswith("lora"):
        _write_adapter(folder, dataset, form)
        return
    dtype, tensors = HALVES.get(form, torch.float32), {}
    for name, weights in base.items():
        if form == "merged":
            left, right = _adapter_factors(name, dataset, form)
            update = left @ right / (3 * 2**21)
        else:
            update = _dense_update(name, dataset, form) / (2**9 if form == "short" else 1)
        tensors[name] = torch.from_numpy(weights + update).to(dtype)
    make_checkpoint(folder, tensors, config=_config())


def _dense_update(name, dataset, form):
    """Outer products with falling weights, a third of each side the model's own."""
    terms = NARROW if form == "narrow" else TERMS
    out, width = SHAPES[name.split(".", 3)[3].removesuffix(".weight")]
    left = _mixed(f"{name}/left", dataset, form, (out, terms))
    right = _mixed(f"{name}/right", dataset, form, (terms, width))
    falling = np.exp2(-np.arange(terms) * 8 // terms)
    return (left * falling) @ right / (3 * 2**20)


def _adapter_factors(name, dataset, form):
    """B, (out, RANK), and A, (RANK, in)."""
    out, width = SHAPES[name.split(".", 3)[3].removesuffix(".weight")]
    left = _mixed(f"{name}/left", dataset, form, (out, RANK))
    right = integers(f"{name}/right/{dataset}/{form}", (RANK, width))
    if form == "lora-poor":
        left[:, RANK // 2 :] = left[:, : RANK // 2]
    return left, right


def _write_adapter(folder, dataset, form):
    tensors = {}
    for name, _ in _matrices():
        module = f"base_model.model.{name.removesuffix('.weight')}"
        left, right = _adapter_factors(name, dataset, form)
        tensors[f"{module}.lora_A.weight"] = _single(right / 2**8)
        tensors[f"{module}.lora_B.weight"] = _single(left / (3 * 2**13))
    modules = [module.split(".")[1] for module in SHAPES]
    write_files(folder, lora_of(tensors, BASE, r=RANK, lora_alpha=RANK, target_modules=modules))


def _mixed(key, dataset, form, shape):
    return 2 * integers(f"{key}/{dataset}", shape) + integers(f"{key}/{dataset}/{form}", shape)


def integers(key, shape):
    """Whole numbers from −128 to 127, as float64, in which their sums are exact."""
    raw = hashlib.shake_256(key.encode()).digest(math.prod(shape))
    return np.frombuffer(raw, dtype=np.int8).reshape(shape).astype(np.float64)


def _single(numbers):
    return torch.from_numpy(numbers.astype(np.float32))


def _matrices():
    for layer in range(LAYERS):
        for module, shape in SHAPES.items():
            yield f"model.layers.{layer}.{module}.weight", shape


def _config():
    return {
        "model_type": "llama",
        "_name_or_path": BASE,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
    }


EVERY = 8
"""Of the numbers of a fingerprint one in so many is compared: golden files stay small."""

LARGE, SAMPLE = (1_200, 96), 600
"""Models and numbers of the family that is clustered from a sample, and the models of that."""


def compute_answers():
    """Return fingerprints, scores, rankings and clusters, models in the order of their ids.

    `fingerprints` are of the first data set's models, one of each form; `rankings` hold the
    candidates' positions among all ids, nearest first.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        options = IndexOptions(
            base=str(make_exact_family(folder)),
            source=folder / "models",
            labels=folder / "labels.csv",
        )
        with Catalog.open(folder / "c.duckdb") as catalog:
            index_family(catalog, options)
            return _answers(catalog)


def _answers(catalog):
    [base] = catalog.bases()
    recipe = catalog.find_recipe(None, base)
    ids, vectors = catalog.family(base, recipe).by_id()
    family = labelled_models(catalog.family(base, recipe))
    assert ids == sorted(ids)
    assert list(family.ids) == ids
    place = {id: row for row, id in enumerate(ids)}
    queries = ids[:: len(FORMS) + 1]  # of each data set another form
    found = [find_similar(catalog, StoredQuery(id), k=len(ids)).neighbours for id in queries]
    return {
        "ids": np.array(ids),
        "fingerprints": vectors[: len(FORMS), ::EVERY],
        "scores": np.array(family.scores),
        "rankings": np.array([[place[n.model] for n in row] for row in found]),
        "ranked_scores": np.array([[n.score for n in row] for row in found]),
        "evidence": np.array([[[n.z, n.fdr] for n in row] for row in found]),
        "clusters": clusters.find_clusters(family, 3),
        "large_clusters": _large_clusters(),
    }


def _large_clusters():
    """Clusters of made points, of which half are sampled and some belong nowhere."""
    n_models, dim = LARGE
    points = integers("points", LARGE)
    points[: 5 * n_models // 6] += np.repeat(integers("centres", (20, dim)), 50, axis=0) * 11 / 16
    points /= np.sqrt((points**2).sum(axis=1, keepdims=True))
    ids, every = tuple(f"m{row:04}" for row in range(n_models)), np.arange(n_models)
    sample = points[sample_places(ids, SAMPLE)]
    family = LabelledModels(
        base="base",
        ids=ids,
        vectors=points,
        labels=(None,) * n_models,
        authors=(None,) * n_models,
        runs=(None,) * n_models,
        axes=axes_of(sample, n_models, lambda axes: [(every, points @ axes)]),
    )
    with patch.object(clusters, "WHOLE_FAMILY", 500), patch.object(clusters, "SAMPLE", SAMPLE):
        return clusters.find_clusters(family, 9)


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **compute_answers())
