"""What benchmarks that start from files start from, at toy size and equal every time."""

import json
import shutil

from factories import WORDS, lora_files, make_bert, make_family, save_tokenizer

ROWS_OF_TEXT = 130
"""The largest batch is 32, of half of one half of a set."""

SETS = {"films": ("good film", "bad film"), "news": ("rain wind", "the team play")}
SETTINGS = "run.json"


def write_texts(folder):
    """`base`, a tiny BERT with a tokenizer, and `texts`, two sets to train it on."""
    make_bert(folder / "base", seed=0)
    save_tokenizer(folder / "base")
    (folder / "texts").mkdir()
    for name, phrases in SETS.items():
        lines = [f"{phrases[row % 2]} {WORDS[row % 9]},{row % 2}" for row in range(ROWS_OF_TEXT)]
        text = "\n".join(["text,label", *lines]) + "\n"
        (folder / "texts" / f"{name}.csv").write_text(text, "utf-8")


def write_built(folder):
    """What `benchmarks.families build` leaves behind, in `out`, and strangers' `adapters`."""
    models = make_family(folder, pairs=tuple(SETS))
    base = make_bert(folder / "base", seed=0)
    adapters = folder / "adapters"
    for number, model in enumerate(sorted(models.glob("*-*"))):
        (model / SETTINGS).write_text(json.dumps({"dataset": model.name.split("-")[0]}), "utf-8")
        (adapters / "base" / model.name).mkdir(parents=True)
        for name, content in lora_files(base, seed=number).items():
            named = content.replace(b"org/base", b"base")
            (adapters / "base" / model.name / name).write_bytes(named)
    shutil.move(models / "labels.csv", adapters / "labels.csv")
    (folder / "out").mkdir()
    shutil.move(models, folder / "out" / "full")
