"""Links in a model's folder to files that are no part of it, and what refusals tell of a file."""

import ast
import json
import os
import pickle
import re
import struct
import sys
import types
from pathlib import Path

import pytest
import torch
from bounds import result_or_refusal
from factories import make_checkpoint, write_file
from safetensors.torch import save

import deltadex
from deltadex.errors import DeltadexError, ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.base import Base
from deltadex.indexer.checkpoint import open_adapter_weights, open_local
from deltadex.indexer.family import folder_members, read_labels, read_member

TENSORS = {"a": torch.ones(2, 2), "b": torch.ones(2, 2)}
SHARD = "model-00002-of-00002.safetensors"
FULL = ("model.safetensors", "pytorch_model.bin", "config.json", "README.md",
        "model.safetensors.index.json", SHARD)  # fmt: skip
ADAPTER = ("adapter_model.safetensors", "adapter_model.bin", "adapter_config.json", "README.md")

CANARY = "Kanarienvogel"
"""What the hostile files hold; no message may."""

NUMBER = 7_310_589
"""Below every limit, so that it is not refused for its size alone."""


def opened(member):
    assert member.folder is not None
    given = member.given
    if member.is_adapter:
        return open_adapter_weights(member.folder, given=given)
    return open_local(member.folder, given=given)


def everything_said(folder):
    """Every message about a model, without digests: their digits can be those of any number."""
    member = read_member(folder, id="m", base="gpt2")
    said = [str(member.refusal), str(member.record)]
    for call in (
        lambda: read_adapter(opened(member), member.config),
        lambda: opened(member),
        lambda: Base(name="b", folder=folder).weights(),
    ):
        try:
            call()
        except DeltadexError as err:
            said.append(str(err))
    return re.sub(r"\b[0-9a-f]{20,}\b", "DIGEST", "\n".join(said))


def honest(folder, file):
    """A folder in which that file counts."""
    folder.mkdir(parents=True)
    if file in ADAPTER and file != "README.md":
        config = {"peft_type": "LORA", "lora_alpha": 8}
        write_file(folder / "adapter_config.json", json.dumps(config))
        write_file(folder / "adapter_model.safetensors", save(TENSORS))
    elif file in (SHARD, "model.safetensors.index.json"):
        make_checkpoint(folder, TENSORS, shards=2)
    else:
        make_checkpoint(folder, TENSORS, config={"model_type": "bert"})
    if file == "pytorch_model.bin":
        (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.parametrize("file", sorted({*FULL, *ADAPTER}))
@pytest.mark.parametrize("target", ["shadow", "real", "nowhere", "drawer"])
def test_a_link_out_of_the_folder_is_refused(tmp_path, file, target):
    """Also where it leads to a proper file of that kind: whose it is, is not known."""
    folder, outside = honest(tmp_path / "m", file), tmp_path / "outside"
    write_file(outside / "shadow", struct.pack("<Q", NUMBER) + CANARY.encode() * 9)
    (outside / "drawer").mkdir()
    if (folder / file).exists():
        (folder / file).rename(outside / "real")
    (folder / file).symlink_to(outside / target)

    member = read_member(folder, id="m", base="gpt2")

    # what is described of every model is refused at once, an index where it is opened
    refusal = member.refusal or result_or_refusal(lambda: opened(member))
    assert isinstance(refusal, ModelError)
    assert str(refusal).startswith(f"outside-folder: {file}: a link")
    assert str(tmp_path) not in str(refusal)
    said = everything_said(folder)
    assert CANARY not in said
    assert str(NUMBER) not in said
    assert target not in said.replace(str(tmp_path), "")


def test_a_link_to_what_the_user_gave_is_followed(tmp_path):
    honest(tmp_path / "models" / "a", "model.safetensors")
    (tmp_path / "models" / "b").mkdir()
    for file in ("model.safetensors", "config.json"):
        (tmp_path / "models" / "b" / file).symlink_to(Path("..", "a", file))
    (tmp_path / "given").symlink_to("models")

    members = {m.record.id: m for m in folder_members(tmp_path / "given", "x", leave_out=None)}

    assert {id: member.refusal for id, member in members.items()} == {"a": None, "b": None}
    assert opened(members["b"]).read("a").tolist() == TENSORS["a"].tolist()
    alone = read_member((tmp_path / "models" / "b").resolve(), id="b", base="x")
    assert alone.refusal is not None
    assert alone.refusal.code == "outside-folder"


def cached(cache, name="models--acme--m"):
    """A model as the Hub client stores it: (snapshot, blobs)."""
    snapshot, blobs = cache / name / "snapshots" / ("c" * 40), cache / name / "blobs"
    honest(snapshot, "model.safetensors")
    blobs.mkdir()
    for n, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(n))
        path.symlink_to(Path("..", "..", "blobs", str(n)))
    return snapshot, blobs


def test_the_hub_caches_own_links_are_followed(tmp_path):
    snapshot, _ = cached(tmp_path)
    (tmp_path / "mine").symlink_to(snapshot)

    for folder in (snapshot, tmp_path / "mine"):
        member = read_member(folder.resolve(), id="m", base="x")
        assert member.refusal is None
        assert opened(member).read("a").tolist() == TENSORS["a"].tolist()


@pytest.mark.parametrize("case", ["another repository", "blobs is a link", "below blobs", "a link"])
def test_no_other_link_of_a_cache_is(tmp_path, case):
    snapshot, blobs = cached(tmp_path)
    _, others = cached(tmp_path, "models--acme--other")
    weights = snapshot / "model.safetensors"
    secret = write_file(tmp_path / "secret" / "x", save(TENSORS))
    if case == "blobs is a link":
        blobs.rename(tmp_path / "moved")
        blobs.symlink_to(tmp_path / "moved")
    else:
        weights.unlink()
        (blobs / "below").mkdir()
        write_file(blobs / "below" / "x", save(TENSORS))
        (blobs / "away").symlink_to(secret)
        targets = {"another repository": others / "1", "below blobs": blobs / "below" / "x"}
        weights.symlink_to(targets.get(case, blobs / "away"))

    member = read_member(snapshot, id="m", base="x")

    assert member.refusal is not None
    assert member.refusal.code == "outside-folder"


def header(entries):
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


def entry(**changes):
    return {CANARY: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


class Thing:
    def __reduce__(self):
        return getattr(_module(), CANARY), (NUMBER,)


def archive(path, state):
    torch.save(state, path)
    return path.read_bytes()


NOT_CHECKPOINTS = {
    "text": lambda _: f"{CANARY}:{NUMBER}\n".encode() * 9,
    "a number": lambda _: struct.pack("<Q", NUMBER) + CANARY.encode() * 9,
    "a large number": lambda _: struct.pack("<Q", NUMBER << 20) + CANARY.encode() * 9,
    "no JSON": lambda _: struct.pack("<Q", len(CANARY)) + CANARY.encode(),
    "JSON": lambda _: header({"password": CANARY, "pin": NUMBER}),
    "no dtype": lambda _: header(entry(dtype=None)),
    "a dtype": lambda _: header(entry(dtype=CANARY, shape=[NUMBER])),
    "a shape": lambda _: header(entry(shape=[NUMBER])),
    "offsets": lambda _: header(entry(data_offsets=[NUMBER, 0])),
    "a hole": lambda _: header(entry(data_offsets=[NUMBER, NUMBER + 8])),
    "cut short": lambda _: header(entry()),
    "bytes after": lambda _: header(entry()) + bytes(8 + NUMBER),
    "twice": lambda _: header(entry()).replace(b"}}", b'},"%s":{}}' % CANARY.encode())[0:8]
    + header(entry())[8:],
    "a pickle": lambda _: pickle.dumps({CANARY: NUMBER}),
    "a zip": lambda _: b"PK\x03\x04" + CANARY.encode() * 9,
    "an unknown name": lambda path: archive(path, {"x": Thing()}),
    "a module": lambda path: archive(path, torch.nn.Linear(2, 2)).replace(
        b"modules.linear", b"modules.Kanari"
    ),
    "no state dict": lambda path: archive(path, {CANARY: NUMBER}),
    "damaged": lambda path: archive(path, {CANARY: torch.ones(4)})[:-90],
}  # fmt: skip


def _module():
    """A module whose name and contents a file may have chosen."""
    made = types.ModuleType("kanari")
    kind = type(CANARY, (), {"__module__": "kanari", "__init__": lambda self, *_: None})
    setattr(made, CANARY, kind)
    sys.modules.setdefault("kanari", made)
    return sys.modules["kanari"]


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "adapter_model.bin"])
@pytest.mark.parametrize("case", NOT_CHECKPOINTS)
def test_no_byte_of_a_file_that_is_no_checkpoint_is_told(tmp_path, file, case, monkeypatch):
    content = NOT_CHECKPOINTS[case](tmp_path / "made")
    monkeypatch.delitem(sys.modules, "kanari", raising=False)
    folder = tmp_path / "m"
    write_file(folder / file, content)
    if file.startswith("adapter"):
        write_file(folder / "adapter_config.json", json.dumps({"lora_alpha": 8}))

    with pytest.raises(ModelError) as refused:
        opened(read_member(folder, id="m", base="gpt2"))

    assert refused.value.code != "internal"
    said = everything_said(folder)
    for told in (CANARY, CANARY.lower(), "Kanari", "kanari", str(NUMBER), str(NUMBER + 8)):
        assert told not in said


VALUES = [CANARY, NUMBER * 10**9, [CANARY], {CANARY: NUMBER}, float("nan"), -NUMBER, True]
KEYS = ("peft_type", "r", "lora_alpha", "init_r", "rank_pattern", "alpha_pattern", "use_rslora",
        "use_dora", "fan_in_fan_out")  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_no_value_of_a_refused_adapter_config_is_told(tmp_path, key, value):
    config = {"peft_type": "LORA", "lora_alpha": 8} | {key: value}
    write_file(tmp_path / "adapter_config.json", json.dumps(config))
    stem = "base_model.model.h.0.attn.c_attn"
    tensors = {f"{stem}.lora_{factor}.weight": torch.ones(2, 2) for factor in "AB"}
    write_file(tmp_path / "adapter_model.safetensors", save(tensors))

    member = read_member(tmp_path, id="m", base="gpt2")
    given = result_or_refusal(lambda: read_adapter(opened(member), member.config))

    said = str(given) if isinstance(given, ModelError) else ""
    assert CANARY not in said
    assert str(NUMBER) not in said


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", f"{CANARY}={NUMBER}".encode()),
        ("config.json", CANARY.encode("utf-16")),
        ("config.json", json.dumps([CANARY, NUMBER]).encode()),
        ("config.json", b'{"a": ' + b"9" * 5001 + b"}"),
        ("config.json", json.dumps({"quantization_config": {"quant_method": CANARY}}).encode()),
        ("model.safetensors.index.json", json.dumps({"weight_map": {"w": CANARY}}).encode()),
        ("model.safetensors.index.json", json.dumps({CANARY: NUMBER}).encode()),
        ("model.safetensors.index.json", b"\xff" + CANARY.encode()),
    ],
)
def test_no_byte_of_a_refused_json_file_is_told(tmp_path, file, content):
    write_file(honest(tmp_path / "m", file) / file, content)

    said = everything_said(tmp_path / "m")

    assert "outside-folder" not in said
    for told in (CANARY, CANARY.lower(), str(NUMBER), "0xff", "5001"):
        assert told not in said


@pytest.mark.parametrize("content", [f"{CANARY};{NUMBER}\n".encode(), b"\xff" + CANARY.encode()])
def test_a_labels_file_that_is_none_is_not_quoted(tmp_path, content):
    with pytest.raises(DeltadexError) as refused:
        read_labels(write_file(tmp_path / "labels.csv", content))

    assert not any(told in str(refused.value) for told in (CANARY, str(NUMBER), "0xff"))


OPENERS = {"open", "read_bytes", "read_text", "fdopen", "memmap", "safe_open", "LocalFile"}


def test_one_module_opens_the_files_of_models():
    """`family.py` opens files that the user names; `hub/files.py` and `lexicon.py` what deltadex
    itself wrote."""
    indexer = Path(deltadex.__file__).parent / "indexer"
    openers = {
        path.relative_to(indexer).as_posix()
        for path in indexer.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in OPENERS)
            or (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in OPENERS
                and not re.match(r"weights|remote|super|files\(|resources", ast.unparse(node.func))
                and "importlib" not in ast.unparse(node.func)
            )
        )
    }

    files = {"checkpoint/files.py", "family.py", "hub/files.py", "lexicon.py"}
    assert openers >= files
    # they read the package's own tables
    resources = {"architecture.py", "untrusted_text.py"}
    assert openers - files <= resources


def test_a_name_that_is_not_unicode_is_spelled_out(tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    write_file(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.safetensors")), b"")

    with pytest.raises(ModelError, match=r"truncated: caf\\udce9\.safetensors: "):
        open_local(folder)
