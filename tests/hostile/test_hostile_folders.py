"""Folders with things in them that are no files, and links to anywhere."""

import json
import os
import stat
from pathlib import Path

import pytest
import torch
from bounds import HOSTILE_TEXTS, code_of, within
from factories import finetune, make_bert, save_models, write_file

import deltadex as dx
from deltadex.errors import UnknownModel
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.checkpoint import ModelFolder, open_adapter_weights, open_local
from deltadex.indexer.family import read_member
from deltadex.store import Catalog

FILES = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "config.json",
         "adapter_config.json", "adapter_model.safetensors", "README.md")  # fmt: skip


def listener(path):
    os.mknod(path, stat.S_IFSOCK | 0o600)


def loop(path):
    path.symlink_to(path.name)


def link_to(target):
    def make(path):
        path.symlink_to(target)

    make.__name__ = target
    return make


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "make",
    [os.mkfifo, listener, loop, Path.mkdir, link_to("/dev/zero"), link_to("/dev/random"),
     link_to("/dev/tty"), link_to("/nowhere"), link_to("/proc/self/mem"), link_to("/etc/passwd")],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_what_is_no_file_is_refused_at_once(tmp_path, file, make):
    make(tmp_path / file)

    with within(seconds=10, mebibytes=32):
        member = read_member(tmp_path, id="m", base="gpt2")
        ModelFolder.at(tmp_path).signature()
        opened = open_adapter_weights if member.is_adapter else open_local
        assert code_of(lambda: opened(tmp_path)) not in ("", "internal")


@pytest.fixture
def family(tmp_path):
    """`base`, and one honest member in `models`."""
    base = make_bert(tmp_path / "base", seed=0)
    save_models(tmp_path, {"honest": finetune(base, seed=1)})
    return tmp_path


def test_hostile_members_never_stop_a_run(family, tmp_path):
    models, mark = family / "models", tmp_path / "owned"
    config = (family / "base" / "config.json").read_text()
    for name in ("pipe", "card-pipe", "config-pipe", "loop", "claim", "long"):
        write_file(models / name / "config.json", config)
    os.mkfifo(models / "pipe" / "model.safetensors")
    for name in ("card-pipe", "config-pipe", "claim", "long"):
        write_file(models / name / "model.safetensors", (2**63).to_bytes(8, "little") * 2)
    os.mkfifo(models / "card-pipe" / "README.md")
    (models / "config-pipe" / "config.json").unlink()
    os.mkfifo(models / "config-pipe" / "config.json")
    loop(models / "loop" / "model.safetensors")
    write_file(models / "claim" / "README.md", '---\nbase_model: "~nobody-here/\\0"\n---\n')
    write_file(models / "long" / "README.md", "---" + "\n" * 390_000)
    write_file(models / "code" / "config.json", json.dumps({"auto_map": {"AutoModel": "owned.M"}}))
    write_file(models / "code" / "owned.py", f"open({str(mark)!r}, 'w')")
    torch.save({"w": torch.ones(2)}, models / "code" / "pytorch_model.bin")
    for n, text in enumerate(HOSTILE_TEXTS[3:8]):
        folder = models / f"name-{n}-{text.replace('/', '')}"
        write_file(folder / "model.safetensors", b"")
    write_file(Path(os.fsdecode(os.fsencode(models) + b"/caf\xe9")) / "model.safetensors", b"")

    options = IndexOptions(base=str(family / "base"), source=models)
    with Catalog.open(tmp_path / "c.duckdb") as opened, within(seconds=60):
        index_family(opened, options)
        codes = {row.id: row.code for row in opened.models()}

    assert codes.pop("honest") is None
    assert set(codes.values()) <= {
        "unreadable", "bad-header", "truncated", "no-attention", "bad-config",
    }  # fmt: skip
    assert len(codes) == 13
    assert not mark.exists()


def test_a_folder_whose_name_is_no_text_is_a_model_for_every_question(family, tmp_path):
    folder = Path(os.fsdecode(os.fsencode(family / "models") + b"/caf\xe9"))
    (family / "models" / "honest").rename(folder)
    with dx.open(tmp_path / "c.duckdb") as db:
        db.index(family / "base", family / "models")
        row = db._catalog.model(str(folder))

        assert row.place == str(folder)
        assert db.find_similar(folder, k=1).to_json()["query"]["model"] == row.id == r"caf\udce9"
        for unknown in ("caf\udcea", os.fsdecode(b"/caf\xea")):
            with pytest.raises(UnknownModel, match="no model"):
                db.show(unknown)
