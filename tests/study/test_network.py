"""Loading from folders, hidden states against transformers' own, and texts that are cut."""

import json

import numpy as np
import pytest
import torch
import transformers
from factories import configure, read_config, write_file
from tiny_networks import (
    SENTENCES,
    all_states,
    ids_of,
    joined,
    make_texts,
    make_tokenizer,
    relative,
    save_folder,
    speaking,
    tiny_config,
    tiny_network,
)

from deltadex.errors import StudyError
from deltadex.study.network.hidden_states import encoded, text_window, token_states
from deltadex.study.network.language_head import load_causal
from deltadex.study.network.model_loading import load_network, untrained_twin
from deltadex.study.texts import Text

IDS = make_texts(5, 12, 9)


def digest(network):
    weights = sorted(network.model.state_dict().items())
    return hash(tuple((name, tensor.numpy().tobytes()) for name, tensor in weights))


@pytest.fixture
def bert_folder(tmp_path):
    return save_folder(tmp_path / "bert", tiny_network("bert").model, tokenizer=make_tokenizer())


@torch.inference_mode()
def output_states(model, ids):
    output = model(input_ids=ids, output_hidden_states=True)
    return np.stack([layer[0].numpy() for layer in output.hidden_states])


def test_half_precision_is_run_in_single_precision(tmp_path):
    model = transformers.AutoModel.from_config(tiny_config("bert"), dtype=torch.bfloat16)
    network = load_network(str(save_folder(tmp_path / "half", model)))

    assert {p.dtype for p in network.model.parameters()} == {torch.float32}


def test_states_of_bert_are_those_of_transformers_with_special_tokens_only_where_asked(bert_folder):
    network = load_network(str(bert_folder))

    states = joined(token_states(network, SENTENCES))
    every = joined(token_states(network, SENTENCES, keep_special=True, keep_first=True))

    for place, text in enumerate(SENTENCES):
        ids = torch.tensor([network.tokenizer(text.text).input_ids])
        expected = output_states(network.model, ids)
        for found, wanted in ((every, expected), (states, expected[:, 1:-1])):
            assert relative(found["hidden"][:, found["text"] == place], wanted) <= 1e-5


def test_the_last_state_of_gpt2_is_the_raw_stream():
    network = tiny_network("gpt2")

    states = all_states(network, IDS[1:2])

    expected = output_states(network.model, ids_of(IDS[1]))
    assert states.shape == expected.shape
    assert relative(states[:-1], expected[:-1]) <= 1e-5
    normed = network.model.ln_f(torch.from_numpy(states[-1])).detach().numpy()
    assert relative(normed, expected[-1]) <= 1e-5
    assert relative(states[-1], expected[-1]) > 0.1


def test_an_encoder_decoder_is_read_at_its_encoder():
    network = tiny_network("t5")

    states = all_states(network, IDS[1:2])

    expected = output_states(network.model.encoder, ids_of(IDS[1]))[:-1]
    assert relative(states[:-1], expected) <= 1e-5


@pytest.mark.parametrize("name", ["bert", "deberta-v2", "gpt2", "bloom", "t5", "albert"])
def test_padding_and_batches_change_no_state(name):
    network = tiny_network(name)

    alone = joined(token_states(network, IDS, batch_size=1))
    together = joined(token_states(network, IDS, batch_size=3))

    assert len(alone["hidden"]) == network.n_layers + 1  # also where layers are shared (albert)
    assert alone["text"].tolist() == together["text"].tolist()
    for one, other in zip(alone["hidden"], together["hidden"], strict=True):
        assert relative(other, one) <= 1e-5


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
def test_texts_longer_than_the_model_are_cut(name):
    states = joined(token_states(tiny_network(name), make_texts(90, 9)))

    assert 50 < np.bincount(states["text"]).max() < 64


def test_token_ids_stand_for_texts_where_there_is_no_tokenizer():
    network, empty = tiny_network("bert"), Text("", "", "x")
    states = joined(token_states(network, (empty, Text("5 6 7", "", "a"), Text(" 8  9 ", "", "b"))))

    assert states["text"].tolist() == [1, 1, 2]
    expected = output_states(network.model, torch.tensor([[5, 6, 7]]))[:, 1:]
    assert relative(states["hidden"][:, :2], expected) <= 1e-5
    assert list(token_states(network, [empty])) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *((ids, r"text 'x' has a token id outside 0…119") for ids in ("5 120", "5 -1")),
        ("A cat.", r"bert has no tokenizer: give token ids.*'x'"),
    ],
)
def test_what_is_no_token_id_is_refused_where_there_is_no_tokenizer(text, line):
    with pytest.raises(StudyError, match=line):
        list(token_states(tiny_network("bert"), [Text(text, "", "x")]))


def test_a_checkpoint_may_lack_a_pooler_and_is_refused_by_the_name_of_a_layers_tensor(tmp_path):
    model, lacking = tiny_network("bert").model, "encoder.layer.1.output.dense.weight"
    pooler = ["pooler.dense.weight", "pooler.dense.bias"]

    assert load_network(str(save_folder(tmp_path / "bare", model, but=pooler))).n_layers == 3
    with pytest.raises(StudyError, match=rf"{lacking} \(1 tensor missing\)"):
        load_network(str(save_folder(tmp_path / "part", model, but=[lacking])))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": "[]"},
        {"config.json": '{"model_type": "bert"}', "model.safetensors": "nonsense"},
        {"adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "/none"}'},
    ],
)
def test_a_folder_of_nonsense_is_refused_in_one_line(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    refused_in_one_line(tmp_path)


def refused_in_one_line(folder, line="^mine"):
    with pytest.raises(StudyError, match=line) as caught:
        load_network(str(folder), name="mine")

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine")


def test_other_shapes_and_an_architecture_that_transformers_does_not_know_are_refused(bert_folder):
    for change, line in (
        ({"intermediate_size": 48}, "^mine: "),
        ({"model_type": "nonsense-net"}, "nonsense-net"),
    ):
        configure(bert_folder, **change)
        refused_in_one_line(bert_folder, line)


@pytest.mark.parametrize(("load", "kind"), [(load_network, "resnet"), (load_causal, "xlnet")])
@pytest.mark.parametrize("is_adapter", [False, True])
def test_an_architecture_that_is_not_in_the_table_is_refused_before_any_weight_is_sought(
    tmp_path, load, kind, is_adapter
):
    base, folder = tmp_path / "odd", tmp_path / ("adapter" if is_adapter else "odd")
    transformers.AutoConfig.for_model(kind).save_pretrained(base)  # without weights
    if is_adapter:
        settings = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
        write_file(folder / "adapter_config.json", json.dumps(settings))

    expected = rf"^mine: unsupported architecture '{kind}'; supported: albert"
    with pytest.raises(StudyError, match=expected):
        load(str(folder), name="mine")


def test_a_decoder_without_a_start_token_begins_with_the_padding(tmp_path):
    folder = save_folder(tmp_path / "t5", tiny_network("t5").model)
    settings = read_config(folder)
    del settings["decoder_start_token_id"]
    settings["pad_token_id"] = 3
    (folder / "config.json").write_text(json.dumps(settings))

    network = load_network(str(folder))
    (batch,) = encoded(network, make_texts(5, 5))

    assert batch.inputs(network)["decoder_input_ids"][:, 0].tolist() == [3, 3]
    configure(folder, pad_token_id=None)
    with pytest.raises(StudyError, match="neither decoder_start_token_id nor pad_token_id"):
        load_network(str(folder))


def test_an_untrained_twin_is_of_the_same_shape_and_seeded_by_its_own_numbers():
    network = speaking("bert")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    one, same, other = (untrained_twin(network, seed=seed) for seed in (0, 0, 1))

    assert torch.equal(torch.rand(3), expected)
    assert digest(one) == digest(same)
    assert len(set(map(digest, (network, one, other)))) == 3
    assert (one.n_layers, one.dim) == (network.n_layers, network.dim)
    assert one.tokenizer is network.tokenizer
    assert one.name == "bert, untrained"
    assert not one.model.training


def test_a_model_saved_without_a_tokenizer_takes_the_bases(tmp_path):
    model = tiny_network("t5").model
    bare = save_folder(tmp_path / "bare", model)
    base = save_folder(tmp_path / "base", model, tokenizer=make_tokenizer())

    assert load_network(str(bare)).tokenizer is None
    tokenizer = load_network(str(bare), base=str(base)).tokenizer
    assert tokenizer("cat").input_ids == make_tokenizer()("cat").input_ids


LETTERS = tuple(Text(" ".join("abc" * n), "", str(n)) for n in (1, 2, 3, 30))
CUT = "2 of 4 texts were cut to 8 tokens; --max-tokens N reads more"
WHOLE = "1 of 4 texts was cut to 64 tokens, the model's window"
BEYOND = "the model's window is 64: --max-tokens 4096 has no effect beyond it"


@pytest.mark.parametrize(
    ("max_tokens", "chosen", "notes"),
    [(8, True, [CUT]), (128, False, [WHOLE]), (4096, True, [BEYOND, WHOLE])],
)
def test_cut_texts_and_a_limit_beyond_the_window_are_said(max_tokens, chosen, notes):
    window = text_window(speaking("gpt2"), LETTERS, max_tokens)
    fitting = text_window(speaking("gpt2"), LETTERS[:3], 11)

    assert list(window.notes(chosen=chosen)) == notes
    assert window.longest == 92  # 90 letters between [CLS] and [SEP]
    assert (fitting.cut, list(fitting.notes(chosen=True))) == (0, [])
