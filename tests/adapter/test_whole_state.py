"""The whole state dict of a PEFT model is read as PEFT merges it."""

from contextlib import closing

import peft
import pytest
import torch
from factories import make_checkpoint
from peft_adapters import indexed_norms, make_model

import deltadex as dx
from deltadex.indexer.family import find_member

WHOLE_STATES = {
    "lora": ("bert", peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "output.dense"])),
    "dora": ("bert", peft.LoraConfig(r=4, use_dora=True, target_modules=["query", "value"])),
    "ia3": ("bert", peft.IA3Config(target_modules=["query"], feedforward_modules=[])),
    "conv1d": ("gpt2", peft.LoraConfig(r=3, lora_alpha=6, target_modules=["c_attn", "c_proj"])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WHOLE_STATES)
def test_a_whole_state_dict_beside_its_settings_is_what_peft_merges(tmp_path, case):
    kind, settings = WHOLE_STATES[case]
    base = make_model(kind)
    base.save_pretrained(tmp_path / "base")
    tuned = peft.get_peft_model(base, settings)
    torch.manual_seed(1)
    for name, parameter in tuned.named_parameters():
        if parameter.requires_grad or "intermediate" in name:  # one that no adapter wraps
            parameter.data += 0.05 * torch.randn_like(parameter)
    state = {name: t.clone() for name, t in tuned.state_dict().items()}
    folder = make_checkpoint(tmp_path / "models" / "state", state, config=tmp_path / "base")
    tuned.peft_config["default"].save_pretrained(folder)
    merged = tuned.merge_and_unload()
    merged.save_pretrained(tmp_path / "models" / "merged")

    with closing(find_member(str(folder), "").checkpoint()) as checkpoint:
        assert checkpoint.tensors.keys() == merged.state_dict().keys()
        for name, expected in merged.state_dict().items():
            torch.testing.assert_close(checkpoint.read(name), expected)

    of_state, of_merged = indexed_norms(tmp_path, "state", "merged")
    with dx.open(tmp_path / "c.duckdb") as db:
        notes = db.show("state").to_json()["notes"]

    assert of_state == pytest.approx(of_merged, rel=1e-4)
    assert any("beside the weights, merged into them" in note for note in notes)
