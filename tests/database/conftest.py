"""A small family beside its catalog, in a folder of its own for every test."""

import json
import shutil

import pytest
import torch
from factories import make_family, save_tokenizer, write_reviews
from safetensors.torch import save_file

import deltadex as dx

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]


@pytest.fixture(scope="session")
def indexed_family(tmp_path_factory):
    """`base`, `models`, `adapter`, texts, and two catalogs of the same four models."""
    folder = tmp_path_factory.mktemp("face")
    models = make_family(folder, pairs=("imdb", "sst2"))
    write_reviews(folder / "reviews.csv")
    write_reviews(folder / "questions.csv", n=32)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    make_adapter(folder / "adapter", base=str(folder / "base"))
    with dx.open(folder / "family.duckdb") as db:
        db.index(folder / "base", models, labels=models / "labels.csv")
        db.backup(folder / "other.duckdb")
    return folder


@pytest.fixture
def family(indexed_family, tmp_path, monkeypatch):
    """The working folder: the same models, whose catalog names the base `base`."""
    for name in ("family.duckdb", "other.duckdb", "texts.txt", "reviews.csv", "questions.csv"):
        shutil.copy(indexed_family / name, tmp_path)
    for name in ("base", "models", "adapter"):
        (tmp_path / name).symlink_to(indexed_family / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def db(family):
    """The family's catalog, open."""
    with dx.open("family.duckdb") as opened:
        yield opened


@pytest.fixture
def tokenizer(family):
    """A tokenizer beside the base, for this test alone: other tests have texts of token ids."""
    base = (family / "base").resolve()
    before = set(base.iterdir())
    save_tokenizer(base)
    yield
    for file in set(base.iterdir()) - before:
        file.unlink()


def make_adapter(folder, *, base):
    """A LoRA adapter of the tiny BERT, as PEFT saves it."""
    module = "base_model.model.encoder.layer.0.attention.self.query"
    generator = torch.Generator().manual_seed(0)
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["query"]}
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": base})
    )
    save_file(
        {
            f"{module}.lora_A.weight": torch.randn(2, 32, generator=generator),
            f"{module}.lora_B.weight": torch.randn(32, 2, generator=generator),
        },
        folder / "adapter_model.safetensors",
    )
