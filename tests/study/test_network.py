"""Loading from folders, and hidden states against transformers' own."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from tiny_networks import (
    all_states,
    joined,
    make_texts,
    make_tokenizer,
    relative,
    save_folder,
    tiny_config,
    tiny_network,
)

from deltadex.errors import StudyError
from deltadex.study.network import load_network, token_states, untrained_twin
from deltadex.study.network.causal_model import load_causal
from deltadex.study.network.hidden_states import encoded
from deltadex.study.texts import Text

SENTENCES = tuple(
    Text(text, "", str(n))
    for n, text in enumerate(("The cat sat on the mat.", "Rain, again!", "Who is singing?"))
)
IDS = make_texts(5, 12, 9)


@pytest.fixture
def bert_folder(tmp_path):
    return save_folder(tmp_path / "bert", tiny_network("bert").model, tokenizer=make_tokenizer())


@torch.inference_mode()
def output_states(model, ids):
    output = model(input_ids=ids, output_hidden_states=True)
    return np.stack([layer[0].numpy() for layer in output.hidden_states])


def test_a_saved_folder_is_loaded_with_its_tokenizer(bert_folder):
    network = load_network(str(bert_folder), name="mine")

    assert (network.name, network.n_layers, network.dim) == ("mine", 3, 32)
    assert network.digest() == tiny_network("bert").digest()
    assert network.tokenizer("cat").input_ids == make_tokenizer()("cat").input_ids
    assert not network.model.training
    assert {p.dtype for p in network.model.parameters()} == {torch.float32}


def test_a_folder_is_named_by_its_path_where_no_name_is_given(bert_folder):
    assert load_network(str(bert_folder)).name == str(bert_folder)


def test_half_precision_is_run_in_single_precision(tmp_path):
    model = transformers.AutoModel.from_config(tiny_config("bert"), dtype=torch.bfloat16)
    folder = save_folder(tmp_path / "half", model)

    network = load_network(str(folder))

    assert {p.dtype for p in network.model.parameters()} == {torch.float32}


def test_a_model_with_a_head_is_loaded_without_it(tmp_path):
    torch.manual_seed(0)
    whole = transformers.AutoModelForMaskedLM.from_config(tiny_config("bert")).eval()
    folder = save_folder(tmp_path / "masked", whole)

    network = load_network(str(folder))

    texts = make_texts(9)
    ids = torch.tensor([[int(one) for one in texts[0].text.split()]])
    assert relative(all_states(network, texts), output_states(whole.bert, ids)) <= 1e-6


def test_states_of_bert_are_those_of_transformers_without_special_tokens(bert_folder):
    network = load_network(str(bert_folder))

    states = joined(token_states(network, SENTENCES))

    for place, text in enumerate(SENTENCES):
        ids = network.tokenizer(text.text, return_tensors="pt").input_ids
        rows = states["text"] == place
        expected = output_states(network.model, ids)[:, 1:-1]
        assert states["token"][rows].tolist() == ids[0, 1:-1].tolist()
        assert states["position"][rows].tolist() == list(range(1, ids.shape[1] - 1))
        assert relative(states["hidden"][:, rows], expected) <= 1e-5


def test_special_and_first_tokens_are_there_where_they_are_asked_for(bert_folder):
    network = load_network(str(bert_folder))

    states = joined(token_states(network, SENTENCES, keep_special=True, keep_first=True))

    ids = [network.tokenizer(text.text).input_ids for text in SENTENCES]
    assert states["token"].tolist() == [number for row in ids for number in row]
    assert states["position"].tolist() == [place for row in ids for place in range(len(row))]


def test_the_last_state_of_gpt2_is_the_raw_stream():
    network = tiny_network("gpt2")
    (text,) = make_texts(9)
    ids = torch.tensor([[int(one) for one in text.text.split()]])

    states = all_states(network, [text])

    expected = output_states(network.model, ids)
    assert states.shape == expected.shape
    assert relative(states[:-1], expected[:-1]) <= 1e-5
    normed = network.model.ln_f(torch.from_numpy(states[-1])).detach().numpy()
    assert relative(normed, expected[-1]) <= 1e-5
    assert relative(states[-1], expected[-1]) > 0.1


def test_an_encoder_decoder_is_read_at_its_encoder():
    network = tiny_network("t5")
    (text,) = make_texts(9)
    ids = torch.tensor([[int(one) for one in text.text.split()]])
    with torch.inference_mode():
        output = network.model.encoder(input_ids=ids, output_hidden_states=True)

    states = all_states(network, [text])

    expected = np.stack([layer[0].numpy() for layer in output.hidden_states[:-1]])
    assert relative(states[:-1], expected) <= 1e-5


def test_shared_layers_are_as_many_as_they_are_run():
    assert all_states(tiny_network("albert"), IDS).shape[0] == 4


@pytest.mark.parametrize(
    "name",
    ["bert", "roberta", "deberta-v2", "gpt2", "bloom", "mpt", "llama", "mixtral", "t5", "bart"],
)
def test_padding_and_batches_change_no_state(name):
    network = tiny_network(name)

    alone = joined(token_states(network, IDS, batch_size=1))
    together = joined(token_states(network, IDS, batch_size=3))

    assert alone["token"].tolist() == together["token"].tolist()
    assert alone["text"].tolist() == together["text"].tolist()
    for one, other in zip(alone["hidden"], together["hidden"], strict=True):
        assert relative(other, one) <= 1e-5


def test_texts_are_cut_to_the_tokens_asked_for():
    states = joined(token_states(tiny_network("bert"), IDS, max_tokens=7))

    assert states["position"].max() == 6
    assert np.bincount(states["text"]).tolist() == [4, 6, 6]


@pytest.mark.parametrize(
    "name",
    [
        "bert",
        "gpt2",
        "opt",
        "roberta",
        "camembert",
        "mpnet",
    ],
)
def test_texts_longer_than_the_model_are_cut(name):
    states = joined(token_states(tiny_network(name), make_texts(90, 9)))

    assert 50 < states["position"].max() < 64


def test_token_ids_stand_for_texts_where_there_is_no_tokenizer():
    states = joined(
        token_states(tiny_network("bert"), (Text("5 6 7", "", "a"), Text(" 8  9 ", "", "b")))
    )

    assert states["token"].tolist() == [6, 7, 9]
    assert states["position"].tolist() == [1, 2, 1]
    assert states["text"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("text", ["5 120", "5 -1", "999999999999"])
def test_token_ids_outside_the_vocabulary_are_refused(text):
    with pytest.raises(StudyError, match=r"text 'x' has a token id outside 0…119"):
        list(token_states(tiny_network("bert"), [Text(text, "", "x")]))


def test_words_without_a_tokenizer_are_refused():
    with pytest.raises(StudyError, match=r"bert has no tokenizer: give token ids.*'x'"):
        list(token_states(tiny_network("bert"), [Text("A cat.", "", "x")]))


def test_texts_of_no_token_at_all_give_no_states():
    assert list(token_states(tiny_network("bert"), [Text("", "", "x")])) == []


def test_a_text_of_no_token_beside_others_is_left_out():
    states = joined(token_states(tiny_network("bert"), (Text("", "", "x"), *IDS)))

    assert set(states["text"].tolist()) == {1, 2, 3}


def test_a_folder_without_a_tokenizer_has_none(tmp_path):
    folder = save_folder(tmp_path / "bare", tiny_network("bert").model)

    assert load_network(str(folder)).tokenizer is None


def test_a_folder_without_a_tokenizer_takes_the_bases(tmp_path, bert_folder):
    folder = save_folder(tmp_path / "bare", tiny_network("bert").model)

    network = load_network(str(folder), base=str(bert_folder))

    assert network.tokenizer("cat").input_ids == make_tokenizer()("cat").input_ids


def test_a_checkpoint_that_lacks_a_layers_tensor_is_refused_by_its_name(tmp_path):
    lacking = "encoder.layer.1.output.dense.weight"
    folder = save_folder(tmp_path / "part", tiny_network("bert").model, but=[lacking])

    with pytest.raises(StudyError, match=rf"{lacking} \(1 tensors missing\)"):
        load_network(str(folder))


def test_a_checkpoint_without_a_pooler_is_loaded(tmp_path):
    lacking = ["pooler.dense.weight", "pooler.dense.bias"]
    folder = save_folder(tmp_path / "part", tiny_network("bert").model, but=lacking)

    assert load_network(str(folder)).n_layers == 3


def test_a_checkpoint_of_other_shapes_is_refused(tmp_path, bert_folder):
    config = json.loads((bert_folder / "config.json").read_text())
    (bert_folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))

    with pytest.raises(StudyError) as caught:
        load_network(str(bert_folder), name="mine")

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine: ")


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"notes.txt": "hello"},
        {"config.json": "{"},
        {"config.json": "{}"},
        {"config.json": "[]"},
        {"config.json": '{"model_type": "bert"}'},
        {"config.json": '{"model_type": "bert"}', "model.safetensors": "nonsense"},
        {"config.json": '{"model_type": "bert"}', "pytorch_model.bin": "nonsense"},
        {"adapter_config.json": "{}"},
        {"adapter_config.json": "{"},
        {"adapter_config.json": "[]"},
        {"adapter_config.json": '{"peft_type": "LORA", "base_model_name_or_path": "/none"}'},
    ],
)
def test_a_folder_of_nonsense_is_refused_in_one_line(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)

    with pytest.raises(StudyError) as caught:
        load_network(str(tmp_path), name="mine")

    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine")


@pytest.mark.parametrize(
    ("load", "kind"),
    [(load_network, "resnet"), (load_network, "xlnet"), (load_causal, "xlnet")],
)
@pytest.mark.parametrize("is_adapter", [False, True])
def test_an_architecture_that_is_not_in_the_table_is_refused_before_any_weight_is_sought(
    tmp_path, load, kind, is_adapter
):
    base, folder = tmp_path / "odd", tmp_path / ("adapter" if is_adapter else "odd")
    transformers.AutoConfig.for_model(kind).save_pretrained(base)  # without weights
    if is_adapter:
        folder.mkdir()
        settings = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
        (folder / "adapter_config.json").write_text(json.dumps(settings))

    expected = rf"^mine: unsupported architecture '{kind}'; supported: albert"
    with pytest.raises(StudyError, match=expected):
        load(str(folder), name="mine")


@pytest.mark.parametrize("removed", [False, True])
def test_a_decoder_without_a_start_token_begins_with_the_padding(tmp_path, removed):
    folder = save_folder(tmp_path / "t5", tiny_network("t5").model)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"decoder_start_token_id": None, "pad_token_id": 3}
    if removed:
        del settings["decoder_start_token_id"]
    (folder / "config.json").write_text(json.dumps(settings))

    network = load_network(str(folder))
    (batch,) = encoded(network, make_texts(5, 5))

    assert batch.inputs(network)["decoder_input_ids"][:, 0].tolist() == [3, 3]
    (folder / "config.json").write_text(json.dumps(settings | {"pad_token_id": None}))
    with pytest.raises(StudyError, match="neither decoder_start_token_id nor pad_token_id"):
        load_network(str(folder))


def test_an_architecture_that_transformers_does_not_know_is_refused_by_name(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "nonsense-net"}')

    with pytest.raises(StudyError, match="nonsense-net"):
        load_network(str(tmp_path))


def test_an_untrained_twin_is_of_the_same_shape_and_seeded():
    network = dataclasses.replace(tiny_network("bert"), tokenizer=make_tokenizer())

    one, same, other = (untrained_twin(network, seed=seed) for seed in (0, 0, 1))

    assert one.digest() == same.digest()
    assert len({network.digest(), one.digest(), other.digest()}) == 3
    assert (one.n_layers, one.dim) == (network.n_layers, network.dim)
    assert one.tokenizer is network.tokenizer
    assert one.name == "bert, untrained"
    assert not one.model.training


def test_an_untrained_twin_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    untrained_twin(tiny_network("bert"))

    assert torch.equal(torch.rand(3), expected)


def test_digests_differ_with_any_weight():
    network = tiny_network("gpt2")

    assert network.digest() == network.digest()
    assert network.digest() != tiny_network("gpt2", seed=1).digest()


@pytest.mark.parametrize("kind", ["t5", "bert", "llama"])
def test_a_model_saved_without_a_tokenizer_takes_the_bases(tmp_path, kind):
    bare = save_folder(tmp_path / "bare", tiny_network(kind).model)
    base = save_folder(tmp_path / "base", tiny_network(kind).model, tokenizer=make_tokenizer())

    assert load_network(str(bare)).tokenizer is None
    tokenizer = load_network(str(bare), base=str(base)).tokenizer
    assert tokenizer("cat").input_ids == make_tokenizer()("cat").input_ids
