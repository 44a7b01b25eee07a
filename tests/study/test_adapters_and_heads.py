"""Networks of PEFT adapters and heads of models, against PEFT's merged models and the models."""

import peft
import pytest
import tiny_networks
import torch
import transformers
from factories import configure
from tiny_language_model import masked_bert, masked_network, save_masked

from deltadex.errors import StudyError
from deltadex.study.components.decomposition import branch_constants, decompose
from deltadex.study.network.hidden_states import encoded
from deltadex.study.network.language_head import head_alone, head_logits, load_head
from deltadex.study.network.model_loading import load_network

IDS = tiny_networks.make_texts(5, 12, 9)


def save_adapter(folder, base_folder, kind, **options):
    """PEFT's own LoRA adapter of random weights beside a saved base."""
    base = kind.from_pretrained(base_folder)
    torch.manual_seed(3)
    config = peft.LoraConfig(r=2, lora_alpha=8, init_lora_weights=False, **options)
    peft.get_peft_model(base, config).save_pretrained(folder)
    return folder


ADAPTERS = {
    "no task": ("bert", "", {"target_modules": ["query", "value"]}),
    "masked": ("roberta", "ForMaskedLM", {"target_modules": ["query", "dense"]}),
    "classes": (
        *("bert", "ForSequenceClassification"),
        {"target_modules": ["query", "value"], "task_type": "SEQ_CLS"},
    ),
    "causal": (
        *("gpt2", "ForCausalLM"),
        {"target_modules": ["c_attn", "c_proj"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True},
    ),
    "sequence": (
        *("t5", "ForSeq2SeqLM"),
        {"target_modules": ["q", "v"], "task_type": "SEQ_2_SEQ_LM"},
    ),
}


@pytest.fixture
def adapted(tmp_path, request):
    """(adapter's folder, base's folder, class) of one kind."""
    name, suffix, options = ADAPTERS[request.param]
    kind = getattr(transformers, f"AutoModel{suffix}")
    base = tiny_networks.save_folder(
        tmp_path / "base",
        tiny_networks.tiny_model(name, suffix),
        tokenizer=tiny_networks.make_tokenizer(),
    )
    return save_adapter(tmp_path / "adapter", base, kind, **options), base, kind


@pytest.mark.parametrize("adapted", ADAPTERS, indirect=True)
def test_an_adapters_states_are_those_of_pefts_own_merged_model(adapted):
    adapter, base, kind = adapted
    merged = peft.PeftModel.from_pretrained(kind.from_pretrained(base), adapter).merge_and_unload()
    expected = tiny_networks.as_network(merged.base_model, "merged")

    network = load_network(str(adapter))

    found = tiny_networks.all_states(network, IDS)
    assert tiny_networks.relative(found, tiny_networks.all_states(expected, IDS)) <= 1e-5
    assert (
        tiny_networks.relative(found, tiny_networks.all_states(load_network(str(base)), IDS)) > 1e-2
    )
    assert network.tokenizer("cat").input_ids == tiny_networks.make_tokenizer()("cat").input_ids


@pytest.mark.parametrize("adapted", ["no task"], indirect=True)
def test_the_base_that_is_given_counts_more_than_the_configs_which_may_be_gone(adapted, tmp_path):
    adapter, base, _ = adapted
    expected = tiny_networks.all_states(load_network(str(adapter)), IDS)
    moved = base.rename(tmp_path / "elsewhere")

    network = load_network(str(adapter), base=str(moved))

    assert tiny_networks.relative(tiny_networks.all_states(network, IDS), expected) <= 1e-6
    with pytest.raises(StudyError, match=r"\Amine: .*\Z"):  # one line: no dot is a line's end
        load_network(str(adapter), name="mine")


def test_an_adapter_with_a_head_of_many_classes_is_loaded(tmp_path):
    base = tiny_networks.save_folder(tmp_path / "base", tiny_networks.tiny_network("bert").model)
    wide = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=5)
    config = peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS")
    peft.get_peft_model(wide, config).save_pretrained(tmp_path / "adapter")

    network = load_network(str(tmp_path / "adapter"), base=str(base))

    assert network.n_layers == tiny_networks.tiny_network("bert").n_layers


def test_an_adapter_of_another_class_of_model_is_refused_and_not_left_out(tmp_path):
    """PEFT only warns, and the states would be those of the base."""
    base = tiny_networks.save_folder(tmp_path / "base", tiny_networks.tiny_network("llama").model)
    kind = transformers.AutoModel
    adapter = save_adapter(tmp_path / "adapter", base, kind, target_modules=["q_proj"])
    configure(adapter, "adapter_config.json", task_type="CAUSAL_LM")

    with pytest.raises(StudyError, match="does not fit LlamaForCausalLM"):
        load_network(str(adapter))


TYPES = ("roberta", "distilbert", "electra", "gpt2", "opt", "gemma2")


@pytest.mark.parametrize("name", TYPES)
def test_the_head_on_the_sum_of_terms_gives_the_models_own_scores(name):
    masked = (
        type(tiny_networks.tiny_config(name)) in transformers.AutoModelForMaskedLM._model_mapping
    )
    model = tiny_networks.tiny_model(name, "ForMaskedLM" if masked else "ForCausalLM")
    network = tiny_networks.as_network(getattr(model, model.base_model_prefix), name)
    (batch,) = encoded(network, tiny_networks.make_texts(7, 5), keep_special=True, keep_first=True)
    with torch.no_grad():
        expected = model(**batch.inputs(network)).logits[batch.mask.bool()]
    stack = network.stacks[0]
    last = decompose(network, stack, batch, branch_constants(network, stack))[-1]

    scores = head_logits(head_alone(model), last.terms.sum(0)[batch.mask.bool()])

    assert float((scores - expected).abs().max() / expected.abs().max()) < 1e-5
    with torch.no_grad():  # and the network still runs
        again = network.model(**batch.inputs(network)).last_hidden_state
    assert again.shape[-1] == network.dim


def test_a_checkpoint_with_a_head_gives_it(tmp_path):
    whole = save_masked(tmp_path / "whole")
    rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))

    head = load_head(str(whole), load_network(str(whole)))

    with torch.no_grad():
        torch.testing.assert_close(head_logits(head, rows), masked_bert().cls(rows))


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (None, {"target_modules": ["query"]}),
        ("cls", {"target_modules": ["query"], "modules_to_save": ["cls"]}),
        ("cls", {"target_modules": r".*(query|transform\.dense)"}),
    ],
)
def test_an_adapter_has_the_head_of_its_base_unless_it_changes_it(tmp_path, changed, options):
    base = save_masked(tmp_path / "base")
    whole = transformers.AutoModelForMaskedLM.from_pretrained(base)
    adapted = peft.get_peft_model(whole, peft.LoraConfig(r=2, **options))
    adapted.save_pretrained(tmp_path / "adapter")

    if changed is None:
        assert load_head(str(tmp_path / "adapter"), masked_network(), base=str(base))
    else:
        with pytest.raises(StudyError, match=f"changes its base's head .{changed}"):
            load_head(str(tmp_path / "adapter"), masked_network(), base=str(base))


def test_a_config_that_contradicts_itself_is_an_error_of_its_model(tmp_path):
    tiny_networks.tiny_model("qwen2").save_pretrained(tmp_path)
    configure(tmp_path, layer_types=["full_attention"])

    with pytest.raises(StudyError, match=r"cannot be loaded: .*num_hidden_layers"):
        load_network(str(tmp_path))
