"""What adapter_config.json states of rank and alpha, against PEFT and against the tensors."""

import json
import math

import peft
import pytest
from peft_adapters import make_adapter, make_model, read_folder

from deltadex.errors import ModelError
from deltadex.indexer.adapter_config import MAX_MATCHES, MAX_RANK, read_config

LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["query"]}


def accepted(config):
    try:
        read_config(LORA | config)
    except ModelError as err:
        return err.code != "bad-config"
    return True


def peft_makes(config, folder):
    """Whether PEFT makes a model of it, with finite weights once they are merged."""
    (folder / "adapter_config.json").write_text(json.dumps(LORA | config))
    try:
        tuned = peft.get_peft_model(make_model("bert"), peft.LoraConfig.from_pretrained(folder))
        merged = tuned.merge_and_unload()
    except (TypeError, ValueError, RuntimeError, AttributeError, MemoryError):
        return False
    return all(bool(p.isfinite().all()) for p in merged.parameters())


@pytest.mark.parametrize(
    "config",
    [{"r": value} for value in (1, 7, 0, -8, "8", 8.5, 8.0, [8], 10**15)]
    + [{"lora_alpha": value} for value in (1, 0, -0.0, -16, 0.5, "16", [8], math.nan, math.inf)]
    + [{"rank_pattern": {"query": value}} for value in (2, 0, -1, "2", 2.5)]
    + [{"alpha_pattern": {"query": value}} for value in (2, 0, -1, 2.5, "2", math.nan, -math.inf)],
    ids=str,
)
def test_a_config_is_refused_where_peft_makes_nothing_of_it(config, tmp_path):
    assert accepted(config) == peft_makes(config, tmp_path)


@pytest.mark.parametrize(
    "config",
    [{"r": True}, {"lora_alpha": False}, {"lora_alpha": 1e30}, {"alpha_pattern": {"q": True}},
     {"rank_pattern": {"q": MAX_RANK + 1}}, {"init_r": 0}, {"init_r": "12"}],
    ids=str,
)  # fmt: skip
def test_what_peft_takes_by_accident_is_refused_too(config):
    assert not accepted(config)


def restated(folder, **changes):
    """The notes on an adapter whose config was changed after it was saved."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return read_folder(folder).notes


CONFIGS = {
    "lora": (peft.LoraConfig(r=4, target_modules=["query", "key"]), 4),
    "loha": (peft.LoHaConfig(r=4, target_modules=["query", "key"]), 4),
    "lokr": (peft.LoKrConfig(r=1, target_modules=["query", "key"]), 1),
}


@pytest.mark.parametrize("method", CONFIGS)
def test_a_rank_that_is_not_the_tensors_is_noted(tmp_path, method):
    config, rank = CONFIGS[method]
    make_adapter("bert", config, tmp_path)
    assert read_folder(tmp_path).notes == ()

    (note,) = restated(tmp_path, r=100_000)

    assert note == (
        f"adapter_config.json says r = 100000, the tensors have {rank} (4 of 4 modules differ)"
    )


def test_a_rank_pattern_is_compared_module_by_module(tmp_path):
    config = peft.LoraConfig(r=4, target_modules=["query", "key"], rank_pattern={"key": 2})
    make_adapter("bert", config, tmp_path)
    assert read_folder(tmp_path).notes == ()

    (note,) = restated(tmp_path, rank_pattern={"layer.1.attention.self.key": 3, "key": 2})

    assert "says r = 3, the tensors have 2 (1 of 4 modules differ)" in note


def test_ranks_that_training_pruned_are_no_disagreement(tmp_path):
    config = peft.AdaLoraConfig(r=8, init_r=4, total_step=10, target_modules=["query"])
    make_adapter("bert", config, tmp_path)

    assert not any("says r" in note for note in read_folder(tmp_path).notes)


def test_patterns_are_not_matched_with_any_number_of_modules():
    config = read_config(LORA | {"alpha_pattern": {f"m{n}": 2 for n in range(4096)}})
    config.require_matchable(MAX_MATCHES // 4096)

    with pytest.raises(ModelError, match="bad-config"):
        config.require_matchable(MAX_MATCHES // 4096 + 1)
