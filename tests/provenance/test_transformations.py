"""The transformations that keep a model's function do, in transformers; the others change it."""

import pytest
import torch
from transformations import CASES, Model, cases, decoys
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

SIZES = {
    "vocab_size": 90,
    "hidden_size": 32,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}
TOKENS = torch.arange(24).reshape(2, 12) * 3 % 45


def make(kind, seed=0):
    torch.manual_seed(seed)
    if kind == "bert":
        network = BertModel(BertConfig(**SIZES))
    else:
        network = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
    for name, parameter in network.named_parameters():
        if parameter.ndim == 1:  # gains and biases of a trained model are not ones and zeros
            parameter.data = 0.2 * torch.randn(parameter.shape) + (name.endswith("norm.weight"))
    state = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    return Model(state=state, config=network.config.to_dict())


def outputs(model):
    if model.config["model_type"] == "bert":
        network = BertModel(BertConfig(**model.config))
        network.load_state_dict(model.state)
        with torch.inference_mode():
            return network.eval()(TOKENS).pooler_output
    network = LlamaForCausalLM(LlamaConfig(**model.config))
    missing, unknown = network.load_state_dict(model.state, strict=False)
    assert not unknown
    assert not missing or model.config["tie_word_embeddings"]
    with torch.inference_mode():
        return network.eval()(TOKENS).logits


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_case_keeps_the_outputs_exactly_where_it_says_so(kind):
    model = make(kind)
    expected = outputs(model)
    scale = expected.std()

    for name, case, changed in cases(model, model):
        if case.same:
            assert (outputs(changed) - expected).abs().max() < 1e-4 * scale, name
        elif case.order is not None or name in ("4-bit", "pruned-50", "noise-20"):
            assert (outputs(changed) - expected).abs().max() > 1e-3 * scale, name


def test_a_case_that_keeps_the_outputs_moves_entries():
    model = make("llama")

    for name, case, changed in cases(model, model):
        if case.same and name != "copy":
            moved = [n for n, t in model.state.items() if not torch.equal(changed.state[n], t)]
            assert len(moved) >= 2 * model.layers, name


def test_decoys_hold_no_layer_of_the_base():
    model = make("bert")

    for name, decoy in decoys(model, make("bert", 1), make("bert", 2)).items():
        if "order" in name:
            continue  # some rows and columns keep their places
        for weight, tensor in decoy.state.items():
            if tensor.ndim == 2 and weight.startswith("encoder."):
                own = model.state[weight]
                cosine = torch.nn.functional.cosine_similarity(tensor, own, dim=1)
                assert cosine.abs().mean() < 0.4, (name, weight)


def test_layers_and_changes_of_cases_are_stated():
    assert all(case.order is None or len(case.order) >= 4 for case in CASES.values())
    assert {c for case in CASES.values() for c in case.changes}
