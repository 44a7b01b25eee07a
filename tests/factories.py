"""Tiny real checkpoints, made in milliseconds and equal for equal seeds."""

import hashlib
import json
import os
import random
import re
from pathlib import Path

import torch
from safetensors.torch import save, save_file

LAYER = re.compile(r"((?:encoder\.layer|model\.layers|transformer\.h)\.)(\d+)\.")


def make_checkpoint(folder, tensors, *, shards=1, form="safetensors", config=None, order=None):
    """The folder, now a transformers folder that holds these tensors.

    Args:
        shards: Files to deal the tensors out to, in turn; from 2 on with an index.
        config: Written as config.json where it is given; of a folder, its own.
        order: All names, in the order in which they are dealt out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        config = read_config(config) if isinstance(config, Path) else config
        (folder / "config.json").write_text(json.dumps(dict(config)))
    stem = "model" if form == "safetensors" else "pytorch_model"
    if shards == 1:
        write_weights(folder / f"{stem}.{form}", {n: tensors[n] for n in order or tensors})
        return folder
    weight_map = {}
    for i in range(shards):
        file = f"{stem}-{i + 1:05d}-of-{shards:05d}.{form}"
        dealt = {name: tensors[name] for name in list(order or tensors)[i::shards]}
        write_weights(folder / file, dealt)
        weight_map.update(dict.fromkeys(dealt, file))
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / f"{stem}.{form}.index.json").write_text(json.dumps(index))
    return folder


def read_config(folder):
    return json.loads((folder / "config.json").read_text("utf-8"))


def configure(folder, file="config.json", **changes):
    """Change settings in a file of a folder."""
    settings = json.loads((folder / file).read_text("utf-8"))
    (folder / file).write_text(json.dumps(settings | changes))


def files_of(folder):
    """The content of each file of a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_file(path, content):
    """The path, with this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_files(folder, files):
    """The folder, with these files in it, by name."""
    for name, content in files.items():
        write_file(folder / name, content)
    return folder


def put_in_cache(cache, repo_id, sha, name, content, *, named=None):
    """The snapshot's folder, with a link into the store as huggingface_hub makes it, to a file that
    has the name of this or other content."""
    folder = cache / f"models--{repo_id.replace('/', '--')}"
    blob = write_file(folder / "blobs" / hashlib.sha256(named or content).hexdigest(), content)
    link = folder / "snapshots" / sha / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(blob, link.parent))
    return link.parent


def save_models(folder, models):
    """`folder/models/NAME` of each model's tensors, with the config of `folder/base`."""
    for name, tensors in models.items():
        make_checkpoint(folder / "models" / name, tensors, config=folder / "base")


def write_weights(path, tensors):
    """Write one weight file in the form that its suffix names."""
    if path.suffix == ".safetensors":
        contiguous = {name: t.contiguous() for name, t in tensors.items()}
        save_file(contiguous, path, metadata={"format": "pt"})
    else:
        torch.save(dict(tensors), path)


NESTED_STATE_DICTS = (
    (),
    ("state_dict",),
    ("model",),
    ("module",),
    ("state_dict", "model"),
    ("model", "model"),
    ("module", "state_dict"),
    ("state_dict", "model", "module"),
    ("model", "model", "model"),
)
"""Keys under which a `.bin` file may hold its state dict, outermost first."""

TOO_DEEP = (("model", "model", "model", "model"), ("weights",), ("model", "weights"))
"""Keys under which none is looked for."""


def nest(state, keys):
    """The state dict under these keys, beside what trainers save."""
    nested = dict(state)
    for key in reversed(keys):
        nested = {key: nested, "epoch": 3, "optimizer": {"state": {}}}
    return nested


def make_bert(
    folder,
    *,
    seed,
    layers=2,
    width=32,
    dtype=torch.float32,
    base=None,
    scale=0.05,
    rank=None,
    shards=1,
):
    """The tensors of a tiny BERT that transformers instantiated and saved in `folder`.

    Given a base's tensors it is a fine-tune of that base: the same model with a random
    update on every layer matrix. Returned as stored, in `dtype`.

    Args:
        scale: |ΔW| / |W| of each updated matrix, Frobenius.
        rank: Of each update; None for a dense one.
        shards: As `make_checkpoint`; transformers' own file is split again.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=64,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BertModel(config)
    if base is not None:
        model.load_state_dict(finetune(base, seed=seed, scale=scale, rank=rank))
    model.to(dtype).save_pretrained(folder)
    stored = {name: t.detach().clone() for name, t in model.state_dict().items()}
    if shards > 1:
        (folder / "model.safetensors").unlink()
        make_checkpoint(folder, stored, shards=shards)
    return stored


def finetune(base, *, seed, scale=0.05, rank=None):
    """The base's tensors with a random update on every layer matrix, in the base's dtype.

    A layer matrix is a 2-D tensor under a numbered module.
    """
    generator = torch.Generator().manual_seed(seed)
    return {
        name: tensor + random_update(tensor, generator, scale=scale, rank=rank)
        if tensor.dim() == 2 and any(piece.isdigit() for piece in name.split("."))
        else tensor.clone()
        for name, tensor in base.items()
    }


def random_update(weight, generator, *, scale, rank=None):
    """A random ΔW of Frobenius norm `scale` × |W|, in the weight's dtype."""
    rows, cols = weight.shape
    if rank is None:
        update = torch.randn(rows, cols, generator=generator)
    else:
        left = torch.randn(rows, rank, generator=generator)
        update = left @ torch.randn(rank, cols, generator=generator)
    size = scale * torch.linalg.vector_norm(weight.float())
    return (update * (size / torch.linalg.vector_norm(update))).to(weight.dtype)


def lora_files(base, *, seed=9):
    """The files of an adapter of every attention matrix, by name; its base is `org/base`."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, weight in base.items():
        if ".attention." in name and weight.dim() == 2:
            stem = "base_model.model." + name.removesuffix(".weight")
            rows, cols = weight.shape
            tensors[f"{stem}.lora_A.weight"] = torch.randn(48, cols, generator=generator)
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, 48, generator=generator) / 50
    modules = ["query", "key", "value", "dense"]
    return lora_of(tensors, "org/base", r=48, lora_alpha=48, target_modules=modules)


def query_adapter(*, base="base", seed=0, rank=2, width=32, layers=2, **settings):
    """The files of an adapter of the queries of `make_bert`, by name."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for layer in range(layers):
        module = f"base_model.model.encoder.layer.{layer}.attention.self.query"
        tensors[f"{module}.lora_A.weight"] = torch.randn(rank, width, generator=generator)
        tensors[f"{module}.lora_B.weight"] = torch.randn(width, rank, generator=generator)
    settings = {"r": rank, "lora_alpha": 2 * rank, "target_modules": ["query"], **settings}
    return lora_of(tensors, base, **settings)


def lora_of(tensors, base, **settings):
    """The files of an adapter with these tensors, by name."""
    config = {"peft_type": "LORA", "base_model_name_or_path": base, **settings}
    return {
        "adapter_config.json": json.dumps(config).encode(),
        "adapter_model.safetensors": save(tensors),
    }


def make_neox(folder, *, width=32):
    """The folder, now a GPT-NeoX base of two layers: the rows of a head's query, key and value
    follow one another."""
    tensors = {
        f"gpt_neox.layers.{n}.attention.query_key_value.weight": torch.randn(3 * width, width)
        for n in range(2)
    }
    config = {"model_type": "gpt_neox", "num_attention_heads": 4, "hidden_size": width}
    return make_checkpoint(folder, tensors, config=config)


def fused_adapter(base, *, width=32):
    """The files of an adapter of both layers of `make_neox`, by name."""
    tensors = {}
    for n in range(2):
        module = f"base_model.model.gpt_neox.layers.{n}.attention.query_key_value"
        tensors[f"{module}.lora_A.weight"] = torch.randn(2, width)
        tensors[f"{module}.lora_B.weight"] = torch.randn(3 * width, 2)
    return lora_of(tensors, base, r=2, lora_alpha=2, target_modules=["query_key_value"])


def make_family(folder, *, pairs=("a", "b"), runs=2):
    """`folder/base` and `folder/models/PAIR-RUN`: runs of a pair share most of their update.

    Returns the models' folder, with a labels.csv that names each pair as a dataset.
    """
    base = make_bert(folder / "base", seed=0)
    lines = ["model,dataset,author,run"]
    for seed, pair in enumerate(pairs, start=1):
        shared = finetune(base, seed=seed)
        for run in range(runs):
            tuned = finetune(shared, seed=100 * seed + run, scale=0.02)
            save_models(folder, {f"{pair}-{run}": tuned})
            lines.append(f"{pair}-{run},{pair},author{run},{pair}-{run}")
    labels = folder / "models" / "labels.csv"
    labels.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "models"


SPECIAL = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
WORDS = ("good", "bad", "film", "plot", "play", "team", "rain", "wind", "the")


def save_tokenizer(folder):
    """A tokenizer for `make_bert` in its folder: token ids as words, and nine words of text."""
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    pieces = [*SPECIAL.values(), *map(str, range(5, 64 - len(WORDS))), *WORDS]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=16, **SPECIAL
    ).save_pretrained(folder)


def write_reviews(path, *, n=24):
    """A csv of `n` texts in the words of `save_tokenizer`, with labels of two classes."""
    draw = random.Random(0)
    rows = ["text,label"]
    for row in range(n):
        label = ("good", "bad")[row % 2]
        words = [draw.choice(WORDS) for _ in range(6)]
        rows.append(f"{' '.join(words)} {label} {row % 30 + 5},{label}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def in_type(tensors, dtype):
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}


def in_order(tensors, order):
    """The tensors with layer i that of `order[i]`."""
    out = {name: t for name, t in tensors.items() if not LAYER.search(name)}
    for new, old in enumerate(order):
        for name, tensor in tensors.items():
            match = LAYER.search(name)
            if match and int(match[2]) == old:
                out[LAYER.sub(rf"\g<1>{new}.", name)] = tensor.clone()
    return out
