"""Networks of PEFT adapters against PEFT's own merged models."""

import json

import peft
import pytest
import torch
import transformers
from tiny_networks import (
    all_states,
    as_network,
    make_texts,
    make_tokenizer,
    perturb,
    relative,
    save_folder,
    tiny_config,
    tiny_network,
)

from deltadex.errors import StudyError
from deltadex.study.network import load_network

IDS = make_texts(5, 12, 9)


def save_adapter(folder, base_folder, kind, **options):
    """PEFT's own LoRA adapter of random weights beside a saved base."""
    base = kind.from_pretrained(base_folder)
    torch.manual_seed(3)
    config = peft.LoraConfig(r=2, lora_alpha=8, init_lora_weights=False, **options)
    model = peft.get_peft_model(base, config)
    model.save_pretrained(folder)
    return folder


ADAPTERS = {
    "no task": ("bert", transformers.AutoModel, {"target_modules": ["query", "value"]}),
    "masked": (
        "roberta",
        transformers.AutoModelForMaskedLM,
        {"target_modules": ["query", "dense"]},
    ),
    "features": (
        "bert",
        transformers.AutoModel,
        {"target_modules": ["query", "output.dense"], "task_type": "FEATURE_EXTRACTION"},
    ),
    "classes": (
        "bert",
        transformers.AutoModelForSequenceClassification,
        {"target_modules": ["query", "value"], "task_type": "SEQ_CLS"},
    ),
    "tokens": (
        "bert",
        transformers.AutoModelForTokenClassification,
        {"target_modules": ["key"], "task_type": "TOKEN_CLS"},
    ),
    "causal": (
        "gpt2",
        transformers.AutoModelForCausalLM,
        {"target_modules": ["c_attn", "c_proj"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True},
    ),
    "llama": (
        "llama",
        transformers.AutoModelForCausalLM,
        {"target_modules": "all-linear", "task_type": "CAUSAL_LM"},
    ),
    "causal without a task": (
        "llama",
        transformers.AutoModelForCausalLM,
        {"target_modules": ["q_proj", "down_proj"]},
    ),
    "sequence": (
        "t5",
        transformers.AutoModelForSeq2SeqLM,
        {"target_modules": ["q", "v"], "task_type": "SEQ_2_SEQ_LM"},
    ),
}


@pytest.fixture
def adapted(tmp_path, request):
    """(adapter's folder, base's folder, class) of one kind."""
    name, kind, options = ADAPTERS[request.param]
    whole = kind.from_config(tiny_config(name))
    perturb(whole, by=0.1)
    base = save_folder(tmp_path / "base", whole, tokenizer=make_tokenizer())
    return save_adapter(tmp_path / "adapter", base, kind, **options), base, kind


@pytest.mark.parametrize("adapted", ADAPTERS, indirect=True)
def test_an_adapters_states_are_those_of_pefts_own_merged_model(adapted):
    adapter, base, kind = adapted
    merged = peft.PeftModel.from_pretrained(kind.from_pretrained(base), adapter).merge_and_unload()
    expected = as_network(merged.base_model, "merged")

    network = load_network(str(adapter))

    found = all_states(network, IDS)
    assert relative(found, all_states(expected, IDS)) <= 1e-5
    assert relative(found, all_states(load_network(str(base)), IDS)) > 1e-2


def edit_config(adapter, **values):
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("adapted", ["causal without a task"], indirect=True)
def test_an_adapter_without_a_recorded_class_is_tried_on_its_bases(adapted):
    adapter, base, _ = adapted
    expected = all_states(load_network(str(adapter)), IDS)
    edit_config(adapter, auto_mapping=None)

    network = load_network(str(adapter))

    assert relative(all_states(network, IDS), expected) <= 1e-6
    assert relative(all_states(network, IDS), all_states(load_network(str(base)), IDS)) > 1e-2


@pytest.mark.parametrize("adapted", ["features", "causal"], indirect=True)
def test_an_adapter_takes_its_bases_tokenizer(adapted):
    network = load_network(str(adapted[0]))

    assert network.tokenizer("cat").input_ids == make_tokenizer()("cat").input_ids


@pytest.mark.parametrize("adapted", ["features"], indirect=True)
def test_the_base_that_is_given_counts_more_than_the_configs(adapted, tmp_path):
    adapter, base, _ = adapted
    expected = all_states(load_network(str(adapter)), IDS)
    moved = base.rename(tmp_path / "elsewhere")

    network = load_network(str(adapter), base=str(moved))

    assert relative(all_states(network, IDS), expected) <= 1e-6


@pytest.mark.parametrize("adapted", ["features"], indirect=True)
def test_an_adapter_whose_base_is_gone_is_refused_in_one_line(adapted, tmp_path):
    adapter, base, _ = adapted
    base.rename(tmp_path / "elsewhere")

    with pytest.raises(StudyError) as caught:
        load_network(str(adapter), name="mine")

    assert str(caught.value).startswith("mine: ")
    assert "\n" not in str(caught.value)


def test_an_adapter_with_a_head_of_many_classes_is_loaded(tmp_path):
    base = save_folder(tmp_path / "base", tiny_network("bert").model)
    wide = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=5)
    config = peft.LoraConfig(
        r=2, target_modules=["query"], task_type="SEQ_CLS", init_lora_weights=False
    )
    peft.get_peft_model(wide, config).save_pretrained(tmp_path / "adapter")

    network = load_network(str(tmp_path / "adapter"), base=str(base))

    assert network.n_layers == tiny_network("bert").n_layers


def test_an_adapter_of_another_class_of_model_is_refused_and_not_left_out(tmp_path):
    """PEFT only warns, and the states would be those of the base."""
    base = save_folder(tmp_path / "base", tiny_network("llama").model)
    kind = transformers.AutoModel
    adapter = save_adapter(tmp_path / "adapter", base, kind, target_modules=["q_proj"])
    settings = adapter / "adapter_config.json"
    settings.write_text(
        settings.read_text().replace('"task_type": null', '"task_type": "CAUSAL_LM"')
    )

    with pytest.raises(StudyError, match="does not fit LlamaForCausalLM"):
        load_network(str(adapter))
