import os

import pytest
import torch
from factories import make_bert, make_checkpoint, write_weights
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from deltadex.errors import ModelError
from deltadex.indexer.checkpoint import (
    Checkpoint,
    ModelFolder,
    disagreement,
    open_adapter_weights,
    open_local,
)

TENSORS = {f"layer.{i}.weight": torch.randn(3, 5) for i in range(7)}
ONES, ZEROS = {"w": torch.ones(2, 2)}, {"w": torch.zeros(2, 2)}


def read_all(checkpoint):
    return {name: checkpoint.read(name) for name in checkpoint.tensors}


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype
        assert torch.equal(got[name], tensor)


def test_what_transformers_saved_is_read_as_safetensors_reads_it(tmp_path):
    make_bert(tmp_path, seed=0, dtype=torch.bfloat16)

    checkpoint = open_local(tmp_path)

    assert isinstance(checkpoint, Checkpoint)
    assert_same(read_all(checkpoint), load_file(tmp_path / "model.safetensors"))
    checkpoint.close()


def test_shards_that_transformers_wrote_are_one_checkpoint(tmp_path):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(vocab_size=64, hidden_size=24, num_hidden_layers=2))
    model.save_pretrained(tmp_path, max_shard_size="50kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2

    assert_same(read_all(open_local(tmp_path)), model.state_dict())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.permutations(sorted(TENSORS)), st.integers(1, 5), st.sampled_from(["safetensors", "bin"]))
def test_order_shards_and_form_do_not_change_the_tensors(tmp_path_factory, order, shards, form):
    folder = tmp_path_factory.mktemp("model")
    make_checkpoint(folder, TENSORS, order=order, shards=shards, form=form)

    checkpoint = open_local(folder)

    assert_same(read_all(checkpoint), TENSORS)
    assert_same(dict(checkpoint.stream(order)), TENSORS)


@pytest.mark.parametrize("shards", [1, 3])
def test_every_byte_read_is_counted(tmp_path, shards):
    make_checkpoint(tmp_path, TENSORS, shards=shards)
    files = list(tmp_path.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    heads = sum(8 + int.from_bytes(file.read_bytes()[:8], "little") for file in files)

    checkpoint = open_local(tmp_path)

    assert checkpoint.bytes_total == size
    assert checkpoint.bytes_read == heads
    checkpoint.read("layer.3.weight")
    assert checkpoint.bytes_read == heads + 3 * 5 * 4
    read_all(checkpoint)
    assert checkpoint.bytes_read == size + 3 * 5 * 4


def test_a_stream_goes_by_file_and_offset_and_gives_each_name_once(tmp_path):
    make_checkpoint(tmp_path, TENSORS, shards=2)
    checkpoint = open_local(tmp_path)

    names = [name for name, _ in checkpoint.stream([*reversed(TENSORS), "layer.0.weight"])]

    refs = [checkpoint.tensors[name] for name in names]
    assert [(r.file, r.start) for r in refs] == sorted((r.file, r.start) for r in refs)
    assert sorted(names) == sorted(TENSORS)


@pytest.mark.parametrize("form", ["safetensors", "bin"])
@pytest.mark.parametrize("shards", [1, 2])
def test_an_absent_tensor_is_missing(tmp_path, form, shards):
    make_checkpoint(tmp_path, TENSORS, shards=shards, form=form)
    checkpoint = open_local(tmp_path)

    with pytest.raises(ModelError, match=r"missing-tensor: .*'embedding'"):
        checkpoint.read("embedding")
    with pytest.raises(ModelError, match=r"missing-tensor: .*'embedding'"):
        list(checkpoint.stream(["layer.0.weight", "embedding"]))


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["model.safetensors", "pytorch_model.bin"], "model.safetensors"),
        (["pytorch_model.bin", "model.fp16.safetensors"], "pytorch_model.bin"),
        (["model.safetensors", "model.fp16.safetensors"], "model.safetensors"),
        (["model.fp16.safetensors"], "model.fp16.safetensors"),
        (["model-00001-of-00001.safetensors"], "model-00001-of-00001.safetensors"),
        (["consolidated.safetensors", "adapter_model.safetensors"], "consolidated.safetensors"),
        (["odd.safetensors", "training_args.bin"], "odd.safetensors"),
    ],
)
def test_the_file_that_transformers_would_load_is_chosen(tmp_path, files, chosen):
    for file in files:
        write_weights(tmp_path / file, ONES if file == chosen else ZEROS)

    assert_same(read_all(open_local(tmp_path)), ONES)


@pytest.mark.parametrize("single", ["model.safetensors", "pytorch_model.bin"])
def test_one_file_goes_before_shards_and_safetensors_before_bin(tmp_path, single):
    make_checkpoint(tmp_path, {**ZEROS, "v": torch.ones(1)}, shards=2, form="bin")
    assert len(open_local(tmp_path).tensors) == 2

    write_weights(tmp_path / single, ONES)

    assert_same(read_all(open_local(tmp_path)), ONES)


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ([], "no-weights"),
        (["adapter_model.safetensors"], "no-weights"),
        (["optimizer.bin"], "no-weights"),
        (["sub/model.safetensors"], "no-weights"),
        (["one.safetensors", "two.safetensors"], "no-weights"),
        (["model-00002-of-00003.safetensors"], "missing-shard"),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], "missing-shard"),
    ],
)
def test_a_folder_without_a_clear_choice_is_refused(tmp_path, files, code):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write_weights(tmp_path / file, ONES)

    with pytest.raises(ModelError, match=f"^{code}: {tmp_path.name}: "):
        open_local(tmp_path)


@pytest.mark.parametrize("opened", [open_local, open_adapter_weights])
def test_a_missing_folder_is_not_found(tmp_path, opened):
    with pytest.raises(ModelError, match="not-found"):
        opened(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_link_to_nowhere_a_folder_and_a_pipe_are_unreadable(tmp_path, name):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / name).symlink_to("nowhere")
    (tmp_path / "b" / name).mkdir(parents=True)

    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / name)

    for folder, line in (("a", "No such file"), ("b", "not a file"), ("c", "not a file")):
        with pytest.raises(ModelError, match=f"unreadable: {name}: {line}"):
            open_local(tmp_path / folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_an_empty_file_is_truncated(tmp_path, name):
    (tmp_path / name).touch()

    with pytest.raises(ModelError, match=f"truncated: {name}"):
        open_local(tmp_path)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_what_peft_saved_is_read_in_both_forms(tmp_path):
    import peft
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=64, hidden_size=24, num_hidden_layers=1)
    model = peft.get_peft_model(BertModel(config), peft.LoraConfig(r=2, target_modules=["query"]))
    model.save_pretrained(tmp_path / "safe")
    expected = load_file(tmp_path / "safe/adapter_model.safetensors")
    (tmp_path / "bin").mkdir()
    torch.save(expected, tmp_path / "bin/adapter_model.bin")

    assert len(expected) == 2
    assert_same(read_all(open_adapter_weights(tmp_path / "safe")), expected)
    assert_same(read_all(open_adapter_weights(tmp_path / "bin")), expected)


def test_an_adapter_without_weights_is_refused(tmp_path):
    write_weights(tmp_path / "model.safetensors", ONES)

    with pytest.raises(ModelError, match=r"no-weights: .*adapter_model\.safetensors or"):
        open_adapter_weights(tmp_path)


def test_of_two_adapter_files_the_safetensors_is_read(tmp_path):
    write_weights(tmp_path / "adapter_model.bin", ZEROS)
    write_weights(tmp_path / "adapter_model.safetensors", ONES)

    assert_same(read_all(open_adapter_weights(tmp_path)), ONES)


NAN = {"w": torch.tensor([[float("nan"), 1.0]]), "s": torch.tensor(2.0)}


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (NAN, None),
        ({**NAN, "s": torch.tensor(3.0)}, "disagrees"),
        ({**NAN, "s": torch.tensor(2.0).half()}, "disagrees"),
        ({**NAN, "s": torch.tensor(2.0).view(torch.int32)}, "disagrees"),
        ({**NAN, "s": torch.tensor([2.0])}, "disagrees"),
        ({**NAN, "more": torch.ones(1)}, "disagrees"),
        ({"w": NAN["w"]}, "disagrees"),
        ({**NAN, "s": torch.tensor(2.0, dtype=torch.complex64)}, "compared (unsupported-dtype)"),
    ],
)
def test_two_adapter_files_are_compared_byte_for_byte(tmp_path, other, line):
    save_file(NAN, tmp_path / "adapter_model.safetensors")
    torch.save(other, tmp_path / "adapter_model.bin")

    difference = disagreement(ModelFolder.at(tmp_path))

    assert (difference is None) == (line is None)
    assert (line or "") in (difference or "")


def test_one_adapter_file_agrees_with_itself_and_an_unreadable_second_is_said(tmp_path):
    assert disagreement(ModelFolder.at(tmp_path)) is None
    write_weights(tmp_path / "adapter_model.safetensors", ONES)
    assert disagreement(ModelFolder.at(tmp_path)) is None

    (tmp_path / "adapter_model.bin").write_bytes(b"\x80\x02 not a zip")

    assert "legacy-pickle" in (disagreement(ModelFolder.at(tmp_path)) or "")
