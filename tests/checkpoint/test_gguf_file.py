"""GGUF in Q8_0 and in floats is read as the model that llama.cpp's converter was given.

Names are those of the `gguf` package, blocks are its own, and what it writes is read by
transformers, too.
"""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
import transformers
from factories import save_models, write_file
from gguf_files import MODELS, Q8, convert, make_model

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import RowBlock, open_local
from deltadex.indexer.checkpoint.gguf_file import NAMES


def rounded(array, kind=Q8):
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(array, kind), kind))


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_is_that_of_the_converted_model_rounded(name, tmp_path):
    tensors = make_model(name).state_dict()
    convert(name, tensors, tmp_path / "model-Q8_0.gguf")

    checkpoint = open_local(tmp_path)

    layers = {n for n, t in tensors.items() if t.dim() == 2 and "position" not in n}
    assert layers <= set(checkpoint.tensors) <= set(tensors)
    for old in layers:
        is_turned = name == "gpt2" and ".c_" in old
        array = tensors[old].T if is_turned else tensors[old]
        expected = rounded(np.ascontiguousarray(array.numpy()))
        read = checkpoint.read(old)
        assert torch.equal(read, expected.T if is_turned else expected), old
        ((_, rows),) = checkpoint.stream_rows([RowBlock(old, 1, min(27, len(read)))])
        assert torch.equal(rows, read[1:27])
        error = float((read - tensors[old]).norm() / tensors[old].norm())
        assert checkpoint.relative_error(old, read) == pytest.approx(error, rel=0.2)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_file_is_read_as_transformers_reads_it(name, tmp_path):
    convert(name, make_model(name).state_dict(), tmp_path / "model-Q8_0.gguf")

    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model-Q8_0.gguf", dtype=torch.float32
    ).state_dict()
    checkpoint = open_local(tmp_path)

    assert all(torch.equal(checkpoint.read(n), theirs[n]) for n in checkpoint.tensors)


@pytest.mark.parametrize("name", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_copies_in_gguf_are_indexed_beside_their_originals(name, tmp_path):
    make_model(name).save_pretrained(tmp_path / "base")
    base = make_model(name).state_dict()
    models = tmp_path / "models"
    for seed in range(3):
        torch.manual_seed(10 + seed)
        tuned = {n: t + 0.2 * t.std() * torch.randn_like(t) for n, t in base.items() if t.dim() > 1}
        tuned = {n: t.clone() for n, t in (base | tuned).items()}
        save_models(tmp_path, {f"m{seed}": tuned})
        convert(name, tuned, models / f"q{seed}" / "tuned.Q8_0.gguf")
    convert(name, base, models / "copy" / "base-Q8_0.gguf")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(tmp_path / "base"), models).to_json()
        near = [
            db.find_similar(f"q{seed}", k=1).to_json()["neighbours"][0]["model"]
            for seed in range(3)
        ]
        notes = db.show("q0").to_json()["notes"]

    refused = [(r["model"], r["code"]) for r in report["failed"] + report["skipped_models"]]
    assert (report["indexed"], refused) == (6, [("copy", "no-update")])
    assert near == ["m0", "m1", "m2"]
    assert any("dequantised from GGUF (Q8_0)" in note for note in notes)


@pytest.mark.parametrize("architecture", NAMES)
def test_names_are_those_of_the_gguf_package(architecture):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], 2)
    ours = dict(NAMES[architecture])
    block = ours.pop("blk")
    known = 0
    for part, name in ours.items():
        for place, full in ((part, name), (f"blk.1.{part}", f"{block}.1.{name}")):
            theirs = names.get_name(f"{full}.weight", try_suffixes=(".weight",))
            assert theirs in (f"{place}.weight", None), full
            known += theirs is not None
    assert known >= 7


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_floats_are_read_as_they_are_stored(kind, tmp_path):
    tensors = make_model("llama").state_dict()
    kind = gguf.GGMLQuantizationType[kind]
    convert("llama", tensors, tmp_path / f"model-{kind.name}.gguf", kind)

    checkpoint = open_local(tmp_path)

    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(checkpoint.read(name).float(), rounded(tensors[name].numpy(), kind))
    assert checkpoint.tensors[name].dtype == kind.name


@pytest.mark.parametrize("kind", ["Q4_0", "Q6_K"])
def test_other_types_are_refused_by_their_name(kind, tmp_path):
    path = convert("llama", make_model("llama").state_dict(), tmp_path / "model.gguf")
    content = path.read_bytes()
    number = struct.pack("<I", gguf.GGMLQuantizationType[kind])
    at = content.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4 + 16
    path.write_bytes(content[:at] + number + content[at + 4 :])

    with pytest.raises(ModelError, match=rf"^quantized: model\.gguf: .*GGUF \({kind}\)"):
        open_local(tmp_path)


def test_a_model_of_several_files_is_read_as_one_and_refused_where_one_is_missing(tmp_path):
    tensors = make_model("llama").state_dict()
    convert("llama", tensors, tmp_path / "one" / "model-Q8_0.gguf", per_file=8)
    parts = sorted((tmp_path / "one").iterdir())
    theirs = [t for part in parts for t in gguf.GGUFReader(part).tensors]

    checkpoint = open_local(tmp_path / "one")

    assert [part.name for part in parts][1] == "model-Q8_0-00002-of-00003.gguf"
    assert len(checkpoint.tensors) == len(theirs) == len(tensors)
    whole = open_local(convert("llama", tensors, tmp_path / "two" / "model-Q8_0.gguf").parent)
    assert all(torch.equal(checkpoint.read(n), whole.read(n)) for n in whole.tensors)
    assert checkpoint.bytes_total == sum(part.stat().st_size for part in parts)

    second = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    with pytest.raises(ModelError, match=r"^missing-shard: model-Q8_0-00002.*another part"):
        open_local(tmp_path / "one")
    parts[1].write_bytes(second)
    open_local(tmp_path / "one").close()

    alone = write_file(tmp_path / "three" / "model.gguf", parts[0].read_bytes())
    with pytest.raises(ModelError, match=r"^missing-shard: model\.gguf: .*another part"):
        open_local(alone.parent)

    for part, said in ((1, "'model-Q8_0-00002-of-00003"), (0, "model-Q8_0-00001-of-00003")):
        parts[part].unlink()
        with pytest.raises(ModelError, match=rf"^missing-shard: .*{said}\.gguf.* not there"):
            open_local(tmp_path / "one")
    make_model("llama").save_pretrained(tmp_path / "base")
    alone.unlink()
    with dx.open(tmp_path / "c.duckdb") as db:
        (failed,) = db.index(tmp_path / "base", tmp_path / "one").to_json()["failed"]
    assert failed["code"] == "missing-shard"


def test_a_part_of_another_model_is_refused_where_the_headers_tell(tmp_path):
    tensors, path = make_model("llama").state_dict(), tmp_path / "one" / "model-Q8_0.gguf"
    convert("llama", tensors, path, per_file=8)
    part = path.with_name("model-Q8_0-00002-of-00003.gguf")
    name = b"general.architecture"
    setting = pack("Q", len(name)) + name + pack("IQ", 8, 24) + b"qwen2".ljust(24)
    second = part.read_bytes()
    contents = {"'general.architecture'": second[:16] + pack("Q", 4) + setting + second[24:]}
    for said, some in (
        ("'split.tensors.count'", dict(list(tensors.items())[:-1])),
        ("21 tensors, 18 names, of 21", dict(reversed(tensors.items()))),
    ):
        convert("llama", some, tmp_path / "other" / path.name, per_file=8)
        contents[said] = (tmp_path / "other" / part.name).read_bytes()

    for said, content in contents.items():
        part.write_bytes(content)
        with pytest.raises(ModelError, match=rf"^missing-shard: model-Q8_0-0000.* {said}"):
            open_local(tmp_path / "one")


@pytest.mark.parametrize("unnamed", ["F16", "Q4_0"])
def test_of_two_files_the_one_with_more_bits_is_read(unnamed, tmp_path):
    tensors = make_model("llama").state_dict()
    convert("llama", tensors, tmp_path / "tuned-Q8_0.gguf")
    convert("llama", tensors, tmp_path / "tuned.gguf", gguf.GGMLQuantizationType[unnamed])

    name = "model.layers.0.self_attn.v_proj.weight"
    file = open_local(tmp_path).tensors[name].file

    assert file == ("tuned.gguf" if unnamed == "F16" else "tuned-Q8_0.gguf")


def test_files_of_one_form_are_ambiguous_and_a_name_that_is_no_form_tells_none(tmp_path):
    tensors = make_model("llama").state_dict()
    convert("llama", tensors, tmp_path / "one" / "a-q8.gguf")
    open_local(tmp_path / "one").close()

    convert("llama", tensors, tmp_path / "two" / "a-Q8_0.gguf")
    convert("llama", tensors, tmp_path / "two" / "b-Q8_0.gguf")
    with pytest.raises(ModelError, match=r"^ambiguous-weights: 'a-Q8_0.gguf', 'b-Q8_0.gguf'"):
        open_local(tmp_path / "two")


def test_heads_that_are_not_those_of_the_bases_config_are_refused(tmp_path):
    model = make_model("llama")
    model.save_pretrained(tmp_path / "base")
    tuned = {n: t + 0.1 * t.std() * torch.randn_like(t) for n, t in model.state_dict().items()}
    convert("llama", tuned, tmp_path / "models" / "m" / "model.gguf", heads=8)

    with dx.open(tmp_path / "c.duckdb") as db:
        (row,) = db.index(str(tmp_path / "base"), tmp_path / "models").to_json()["failed"]

    assert row["code"] == "shape-mismatch"
    assert "its GGUF header counts 8 query heads, the base's config 4" in row["reason"]


def pack(form, *values):
    return struct.pack(f"<{form}", *values)


MANY = b"\xff" * 8
HEADS, QUERIES, VALUES = b"head_count", b"attn_q.weight", b"attn_v.weight"
CUTS = {
    "empty": ("truncated", lambda c: b""),
    "lfs": ("bad-header", lambda c: b"version https://git-lfs.github.com/spec/v1\n"),
    "version": ("bad-header", lambda c: c[:4] + struct.pack(">I", 3) + c[8:]),
    "tensors": ("bad-header", lambda c: c[:8] + MANY + c[16:]),
    "header": ("truncated", lambda c: c[:300]),
    "name": ("truncated", lambda c: c[:24] + MANY + c[32:]),
    "data": ("truncated", lambda c: c[:-4000]),
}
EDITS = {
    "list": ("bad-header", pack("IQ", 8, 64), pack("I", 8) + MANY),
    "numbers": ("truncated", pack("IQ", 8, 64), pack("I", 4) + MANY),
    "type": ("bad-header", HEADS + pack("I", 4), HEADS + pack("I", 99)),
    "heads": ("bad-header", HEADS + pack("II", 4, 4), HEADS + pack("II", 4, 7)),
    "architecture": ("quantized", pack("Q", 5) + b"llama", pack("Q", 5) + b"other"),
    "twice": ("duplicate-tensor", b"blk.0.attn_q.weight", b"blk.1.attn_q.weight"),
    "rows": ("bad-offsets", VALUES + pack("IQ", 2, 64), VALUES + pack("IQ", 2, 63)),
    "size": ("truncated", VALUES + pack("IQQ", 2, 64, 32), VALUES + pack("IQQ", 2, 64, 1 << 40)),
    "sizes": ("bad-offsets", VALUES + pack("IQQ", 2, 64, 32), VALUES + pack("IQQ", 2, 0, 1 << 63)),
    "overlap": ("bad-offsets", VALUES + pack("IQQ", 2, 64, 32), VALUES + pack("IQQ", 2, 64, 99)),
    "no rows": ("bad-header", QUERIES + pack("IQQ", 2, 64, 64), QUERIES + pack("IQQ", 2, 64, 0)),
    "dimensions": ("bad-header", VALUES + pack("I", 2), VALUES + pack("I", 1 << 31)),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    return convert("llama", make_model("llama").state_dict(), path).read_bytes()


@pytest.mark.parametrize("fault", [*CUTS, *EDITS])
def test_a_damaged_or_hostile_file_is_refused_with_its_reason(fault, good, tmp_path):
    if fault in CUTS:
        code, cut = CUTS[fault]
        content = cut(good)
    else:
        code, old, new = EDITS[fault]
        assert old in good
        content = good.replace(old, new, 1)
    (tmp_path / "model.gguf").write_bytes(content)

    with pytest.raises(ModelError, match=rf"^{code}: model\.gguf"):
        open_local(tmp_path)


def test_a_scale_that_is_no_number_is_refused(good, tmp_path):
    make_model("llama").save_pretrained(tmp_path / "base")
    path = write_file(tmp_path / "m" / "model.gguf", good)
    at = open_local(path.parent).tensors["model.layers.0.self_attn.v_proj.weight"].start
    path.write_bytes(good[:at] + b"\xff\x7f" + good[at + 2 :])
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "llama"}))

    with dx.open(tmp_path / "c.duckdb") as db:
        (row,) = db.index(str(tmp_path / "base"), tmp_path / "m").to_json()["failed"]

    assert row["code"] == "non-finite"
