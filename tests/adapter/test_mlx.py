"""Adapters of mlx-lm are read; those of diffusion models are named as what they are."""

import json

import numpy as np
import peft
import pytest
import torch
from peft_adapters import make_model
from safetensors.torch import load_file, save_file

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.family import find_member

FORMS = {"lora_A.weight": "lora_a", "lora_B.weight": "lora_b", "lora_magnitude_vector": "m"}


def as_mlx(folder, peft_folder, *, dora=False, npz=False):
    """The file that mlx-lm's `save_adapter` would write of the same factors."""
    folder.mkdir(parents=True)
    tensors = {}
    for name, tensor in load_file(peft_folder / "adapter_model.safetensors").items():
        stem, form = next((name.split(f".{f}")[0], FORMS[f]) for f in FORMS if f".{f}" in name)
        turned = tensor if form == "m" else tensor.T.contiguous()
        tensors[f"{stem.removeprefix('base_model.model.')}.{form}"] = turned
    if npz:
        np.savez(folder / "adapters.npz", **{name: t.numpy() for name, t in tensors.items()})
    else:
        save_file(tensors, folder / "adapters.safetensors")
    config = {
        "model": "mlx-community/tiny-llama-4bit",
        "fine_tune_type": "dora" if dora else "lora",
        "num_layers": 2,
        "lora_parameters": {"rank": 4, "scale": 2.0, "dropout": 0.0},
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(("dora", "npz"), [(False, False), (True, False), (False, True)])
def test_an_adapter_of_mlx_is_that_of_peft_with_its_factors_turned(tmp_path, dora, npz):
    model = make_model("llama")
    model.save_pretrained(tmp_path / "tiny-llama")
    settings = peft.LoraConfig(r=4, lora_alpha=8, use_dora=dora, target_modules=["q_proj"])
    tuned = peft.get_peft_model(model, settings)
    torch.manual_seed(0)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.02 * torch.randn_like(parameter)
    tuned.save_pretrained(tmp_path / "models" / "peft")
    as_mlx(tmp_path / "models" / "mlx", tmp_path / "models" / "peft", dora=dora, npz=npz)

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(tmp_path / "tiny-llama"), tmp_path / "models").to_json()
        shown = [db.show(id).to_json() for id in ("mlx", "peft")]
        near = db.find_similar("mlx", k=1).to_json()["neighbours"][0]

    assert (report["indexed"], report["failed"]) == (2, []), report["skipped_models"]
    assert near["cosine"] > 0.99999
    norms = [[slot["fro_norm"] for slot in one["slots"]] for one in shown]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert shown[0]["method"] == ("dora" if dora else "lora")


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (("lora_unet_down_blocks_0_attn.lora_down.weight", "lora_te_text_model.alpha"), "kohya"),
        (("unet.down.0.attn1.to_q.lora_A.weight", "text_encoder.layers.0.lora_B.weight"), "diffus"),
    ],
)
def test_the_lora_of_a_diffusion_model_is_named_whatever_its_file(tmp_path, names, form):
    save_file({name: torch.ones(2, 2) for name in names}, tmp_path / "style.safetensors")

    with pytest.raises(ModelError, match=f"^unsupported-adapter: .*diffusion model.*{form}"):
        find_member(str(tmp_path), "").checkpoint()
