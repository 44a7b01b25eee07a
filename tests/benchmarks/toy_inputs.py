"""What benchmarks that start from files start from, at toy size and equal every time."""

import json
from dataclasses import replace

import numpy as np
from catalogs import SLOT
from safetensors.numpy import save_file

from deltadex.records import Fingerprint, Indexed, ModelRecord, Recipe
from deltadex.store import Catalog, encode_sketch

WIDTH, LAYERS = 16, 2
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("good", "bad", "film", "up", "down", "market", "a", "long", "day")
ROWS_OF_TEXT = 130
"""The largest batch is 32, of half of one half of a set."""

SETS = {"films": ("good film", "bad film"), "news": ("market up", "market down")}
SETTINGS = "run.json"
RECIPE = Recipe(name="sketch", rank=2, dim=16, params=(("slot_blocks", "update:8,output:8"),))


def write_catalog(folder):
    """`c.duckdb`: 60 models of three datasets and twenty authors, each with a sketch."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, RECIPE.dim))
    with Catalog.open(folder / "c.duckdb") as catalog:
        for number in range(60):
            vector = centres[number % 3] + 0.5 * rng.normal(size=RECIPE.dim)
            vector = (vector / np.linalg.norm(vector)).astype(np.float32)
            catalog.record(_indexed(number, vector))


def _indexed(number, vector):
    name, dataset, author = f"m{number:02}", f"d{number % 3}", f"a{number % 20}"
    record = ModelRecord(id=name, base="base", signature=name, dataset=dataset, author=author)
    slot = replace(SLOT, sketch=encode_sketch([vector[:8], vector[8:]], [1.0, 1.0]))
    fingerprint = Fingerprint(recipe=RECIPE, vector=vector, norm=1.0)
    return Indexed(
        model=record, fingerprints=(fingerprint,), slots=(slot,), bytes_read=0, seconds=0.0
    )


def write_texts(folder):
    """`base`, a tiny BERT with a tokenizer, and `texts`, two sets to train it on."""
    write_bert(folder / "base", bert_tensors(np.random.default_rng(0)))
    write_texts_of(folder / "texts")


def write_texts_of(texts):
    texts.mkdir()
    for name, phrases in SETS.items():
        lines = [f"{phrases[row % 2]} {WORDS[row % 9]},{row % 2}" for row in range(ROWS_OF_TEXT)]
        (texts / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n", "utf-8")


def write_built(folder):
    """What `benchmarks.families build` leaves behind, in `out`, and strangers' `adapters`."""
    base = bert_tensors(np.random.default_rng(0))
    write_bert(folder / "base", base)
    lines = ["model,dataset,author,run"]
    for number in range(4):
        dataset, seed = list(SETS)[number % 2], number // 2
        model = folder / "out" / "full" / f"{dataset}-{seed}"
        write_bert(model, tuned(base, number % 2, number))
        (model / SETTINGS).write_text(json.dumps({"dataset": dataset}), "utf-8")
        write_adapter(folder / "adapters" / "base" / f"{dataset}-{seed}", number)
        lines.append(f"{dataset}-{seed},{dataset},author{seed},run{number}")
    (folder / "adapters" / "labels.csv").write_text("\n".join(lines) + "\n", "utf-8")


def bert_tensors(rng):
    """Every parameter of a BERT without a head, under transformers' names."""
    tensors = {
        "embeddings.word_embeddings.weight": _matrix(rng, len(SPECIAL + WORDS), WIDTH),
        "embeddings.position_embeddings.weight": _matrix(rng, 32, WIDTH),
        "embeddings.token_type_embeddings.weight": _matrix(rng, 2, WIDTH),
        **_linear(rng, "pooler.dense", WIDTH, WIDTH),
        **_norm("embeddings.LayerNorm"),
    }
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for role in ("self.query", "self.key", "self.value", "output.dense"):
            tensors |= _linear(rng, f"{at}.attention.{role}", WIDTH, WIDTH)
        tensors |= _linear(rng, f"{at}.intermediate.dense", 2 * WIDTH, WIDTH)
        tensors |= _linear(rng, f"{at}.output.dense", WIDTH, 2 * WIDTH)
        tensors |= _norm(f"{at}.attention.output.LayerNorm") | _norm(f"{at}.output.LayerNorm")
    return tensors


def tuned(base, dataset, seed):
    """The base moved the dataset's way, and a little its own way."""
    rng, own = np.random.default_rng(100 + dataset), np.random.default_rng(200 + seed)
    return {
        name: tensor
        + 0.002 * rng.standard_normal(tensor.shape, np.float32)
        + 0.001 * own.standard_normal(tensor.shape, np.float32)
        for name, tensor in base.items()
    }


def write_bert(folder, tensors):
    """A transformers folder with a tokenizer."""
    folder.mkdir(parents=True)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": 32,
        "vocab_size": len(SPECIAL + WORDS),
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', "utf-8")
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n", "utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write_adapter(folder, seed):
    """A LoRA of rank 2 on the queries, as PEFT saves it."""
    folder.mkdir(parents=True)
    config = {
        "peft_type": "LORA",
        "base_model_name_or_path": "base",
        "r": 2,
        "lora_alpha": 4,
        "target_modules": ["query"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    rng = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        at = f"base_model.model.encoder.layer.{layer}.attention.self.query"
        tensors[f"{at}.lora_A.weight"] = _matrix(rng, 2, WIDTH)
        tensors[f"{at}.lora_B.weight"] = _matrix(rng, WIDTH, 2)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _linear(rng, name, rows, cols):
    return {f"{name}.weight": _matrix(rng, rows, cols), f"{name}.bias": np.zeros(rows, np.float32)}


def _norm(name):
    return {f"{name}.weight": np.ones(WIDTH, np.float32), f"{name}.bias": np.zeros(WIDTH, "f4")}


def _matrix(rng, rows, cols):
    return rng.normal(scale=0.05, size=(rows, cols)).astype(np.float32)
