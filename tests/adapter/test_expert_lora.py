"""LoRA on stacked experts equals PEFT's merge."""

import peft
import pytest
import torch
from peft_adapters import indexed_norms
from tiny_networks import tiny_model

from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.family import find_member


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize(
    ("targets", "patterns"),
    [(["gate_up_proj", "down_proj"], {r".*\.gate_up_proj": 4}), (["down_proj"], {})],
)
def test_lora_on_stacked_experts_is_indexed_as_its_merged_copy(tmp_path, kind, targets, patterns):
    model = tiny_model(kind, "ForCausalLM")
    model.save_pretrained(tmp_path / "base")
    before = {name: p.clone() for name, p in model.named_parameters()}
    settings = peft.LoraConfig(
        r=2,
        lora_alpha=4,
        target_modules=["q_proj"],
        rank_pattern=patterns,
        alpha_pattern=patterns,
        target_parameters=[f"mlp.experts.{name}" for name in targets],
    )
    tuned = peft.get_peft_model(model, settings)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.02 * torch.randn_like(parameter)
    tuned.save_pretrained(tmp_path / "models" / "adapter")
    merged = tuned.merge_and_unload()
    merged.save_pretrained(tmp_path / "models" / "merged")

    member = find_member(str(tmp_path / "models" / "adapter"), "")
    adapter = read_adapter(member.checkpoint(), member.config)
    experts = [module for module in adapter.modules if "experts" in module]
    assert len(experts) == 3 * len(targets)
    for module in experts:
        delta = adapter.delta(module, None)
        expected = merged.get_parameter(module) - before[module]
        ours = delta.left @ delta.right
        torch.testing.assert_close(ours.mT if kind == "gpt_oss" else ours, expected.detach())

    of_adapter, of_merged = indexed_norms(tmp_path, "adapter", "merged")
    assert of_adapter == pytest.approx(of_merged, rel=1e-4)
    assert len(of_adapter) == 3 * (1 + (1 if len(targets) == 1 else 3))
