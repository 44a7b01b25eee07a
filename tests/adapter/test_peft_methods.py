"""Every method of PEFT is computed as PEFT merges it, or refused by name."""

import copy

import peft
import pytest
import torch
from peft_adapters import (
    MemoryCheckpoint,
    assert_same_updates,
    make_adapter,
    make_model,
    read_folder,
)
from safetensors.torch import load_file

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.adapter_config import REFUSED, SUPPORTED

T = ["q_proj", "down_proj"]
CASES = {
    "oft": ("OFT", peft.OFTConfig(target_modules=T, oft_block_size=4)),
    "oft-exact": (
        "OFT",
        peft.OFTConfig(target_modules=T, oft_block_size=4, use_cayley_neumann=False),
    ),
    "oft-three-terms": (
        "OFT",
        peft.OFTConfig(target_modules=T, oft_block_size=4, num_cayley_neumann_terms=3),
    ),
    "oft-shared": ("OFT", peft.OFTConfig(target_modules=T, oft_block_size=4, block_share=True)),
    "oft-constrained": (
        "OFT",
        peft.OFTConfig(target_modules=T, oft_block_size=4, coft=True, eps=0.5),
    ),
    "boft": ("BOFT", peft.BOFTConfig(target_modules=T, boft_block_size=4)),
    "hra": ("HRA", peft.HRAConfig(target_modules=T, r=3)),
    "hra-orthogonal": ("HRA", peft.HRAConfig(target_modules=T, r=4, apply_GS=True)),
    "miss": ("MISS", peft.MissConfig(target_modules=T, r=8)),
    "miss-remainder": ("MISS", peft.MissConfig(target_modules=T, r=7)),
    "miss-mini": ("MISS", peft.MissConfig(target_modules=T, r=8, init_weights="mini", mini_r=4)),
    "miss-bat": ("MISS", peft.MissConfig(target_modules=T, r=8, init_weights="bat")),
    "c3a": ("C3A", peft.C3AConfig(target_modules=T, block_size=8)),
    "hira": ("HIRA", peft.HiraConfig(target_modules=T, r=2)),
    "road-1": ("ROAD", peft.RoadConfig(target_modules=T, group_size=8)),
    "road-2": ("ROAD", peft.RoadConfig(target_modules=T, group_size=8, variant="road_2")),
    "road-4": ("ROAD", peft.RoadConfig(target_modules=T, group_size=8, variant="road_4")),
    "shira": ("SHIRA", peft.ShiraConfig(target_modules=T, r=2)),
    "fourierft": ("FOURIERFT", peft.FourierFTConfig(target_modules=T, n_frequency=20)),
    "randlora": ("RANDLORA", peft.RandLoraConfig(target_modules=[*T, "up_proj"], r=3)),
    "delora": ("DELORA", peft.DeloraConfig(target_modules=T, r=2)),
    "gralora": ("GRALORA", peft.GraloraConfig(target_modules=T, r=4, gralora_k=2, hybrid_r=2)),
    "gralora-alone": ("GRALORA", peft.GraloraConfig(target_modules=T, r=4, gralora_k=2)),
    "vblora": (
        "VBLORA",
        peft.VBLoRAConfig(target_modules=T, r=2, vector_length=4, num_vectors=6, topk=2),
    ),
    "vblora-topk": (
        "VBLORA",
        peft.VBLoRAConfig(
            target_modules=T,
            r=2,
            vector_length=4,
            num_vectors=6,
            topk=2,
            save_only_topk_weights=True,
        ),
    ),
    "glora": ("GLORA", peft.GloraConfig(target_modules=T, r=2)),
    "glora-rows": ("GLORA", peft.GloraConfig(target_modules=T, config_A_B="vector")),
    "glora-number": ("GLORA", peft.GloraConfig(target_modules=T, config_A_B="constant")),
    "psoft": ("PSOFT", peft.PsoftConfig(target_modules=T, r=4)),
    "psoft-pissa": ("PSOFT", peft.PsoftConfig(target_modules=T, r=4, ab_svd_init="pissa_init")),
    "psoft-series": (
        "PSOFT",
        peft.PsoftConfig(target_modules=T, r=4, use_cayley_neumann=True, cayley_neumann_eps=0.1),
    ),
    "psoft-free": (
        "PSOFT",
        peft.PsoftConfig(target_modules=T, r=4, psoft_orth=False, psoft_mag_a=False),
    ),
    "waveft": ("WAVEFT", peft.WaveFTConfig(target_modules=T, n_frequency=20)),
    "waveft-sparse": ("WAVEFT", peft.WaveFTConfig(target_modules=T, n_frequency=9, use_idwt=False)),
    "pvera": ("PVERA", peft.PveraConfig(target_modules=T, r=2)),
}
ELSEWHERE = {"LORA", "ADALORA", "LOHA", "LOKR", "VERA", "IA3"}
"""Methods that `test_lora` and `test_other_methods` compare with their merges."""


@pytest.mark.parametrize("case", CASES)
def test_a_method_equals_its_merged_weights(case, tmp_path):
    peft_type, config = CASES[case]
    merged = make_adapter("llama", config, tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == peft_type.lower()
    assert_same_updates(adapter, merged, tolerance=2e-5)
    assert len(merged.updates) == 2 * len(config.target_modules)


GPT2 = {
    "hira": peft.HiraConfig(target_modules=["c_attn"], r=2),
    "fourierft": peft.FourierFTConfig(target_modules=["c_attn"], n_frequency=20),
    "randlora": peft.RandLoraConfig(target_modules=["c_attn"], r=3),
    "vblora": peft.VBLoRAConfig(
        target_modules=["c_attn"], r=2, vector_length=4, num_vectors=6, topk=2
    ),
}


@pytest.mark.parametrize("factors", [2, 3])
def test_butterfly_factors_are_multiplied_as_on_a_processor_that_has_the_kernel(
    factors, tmp_path, monkeypatch
):
    class Blocks:
        @staticmethod
        def apply(stacked):
            return torch.stack([torch.block_diag(*blocks) for blocks in stacked])

    monkeypatch.setattr("peft.tuners.boft.layer.get_fbd_cuda", lambda: True)
    monkeypatch.setattr("peft.tuners.boft.layer.FastBlockDiag", Blocks)
    config = peft.BOFTConfig(
        target_modules=["q_proj"], boft_block_size=4, boft_n_butterfly_factor=factors
    )

    merged = make_adapter("llama", config, tmp_path)

    assert_same_updates(read_folder(tmp_path), merged, tolerance=2e-5)
    assert len(merged.updates) == 2


@pytest.mark.parametrize(
    ("case", "change"), [("psoft", {"psoft_svd": "lowrank"}), ("waveft", {"wavelet_family": "db4"})]
)
def test_a_form_of_a_method_that_is_not_computed_is_refused(case, change, tmp_path):
    make_adapter("llama", CASES[case][1], tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    adapter = read_adapter(MemoryCheckpoint(tensors), CASES[case][1].to_dict() | change)

    with pytest.raises(ModelError, match=r"^unsupported-adapter: "):
        adapter.delta(next(iter(adapter.modules)), torch.ones(16, 16))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", GPT2)
def test_a_method_equals_its_merged_weights_where_they_are_stored_in_by_out(method, tmp_path):
    merged = make_adapter("gpt2", GPT2[method], tmp_path)

    assert_same_updates(read_folder(tmp_path), merged)


@pytest.mark.parametrize("case", ["oft", "shira"])
def test_an_adapter_of_such_a_method_is_indexed_as_its_merged_copy(case, tmp_path):
    model = make_model("llama")
    model.save_pretrained(tmp_path / "base")
    tuned = peft.get_peft_model(model, copy.deepcopy(CASES[case][1]))
    torch.manual_seed(1)
    for parameter in filter(lambda p: p.requires_grad, tuned.parameters()):
        parameter.data += 0.01 * torch.randn_like(parameter)
    tuned.save_pretrained(tmp_path / "models" / "adapter")
    tuned.merge_and_unload().save_pretrained(tmp_path / "models" / "merged")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(tmp_path / "base"), tmp_path / "models").to_json()
        norms = [db.show(id).to_json()["slots"] for id in ("adapter", "merged")]

    assert report["failed"] == []
    theirs = [slot["fro_norm"] for slot in norms[1] if slot["fro_norm"]]
    assert [slot["fro_norm"] for slot in norms[0]] == pytest.approx(theirs, rel=1e-4)


def test_the_list_of_peft_is_computed_or_refused_and_nothing_of_it_is_neither():
    computed = {peft_type for peft_type, _ in CASES.values()} | ELSEWHERE
    known = {str(peft_type).removeprefix("PeftType.") for peft_type in peft.PeftType}

    assert known == computed | (known & REFUSED.keys())
    assert computed.isdisjoint(REFUSED)
    assert computed == set(SUPPORTED) - {"BONE"}


def test_bone_is_what_miss_was_called(tmp_path):
    make_adapter("llama", peft.MissConfig(target_modules=T, r=8), tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    former = {name.replace("miss_block", "bone_block"): t for name, t in tensors.items()}
    config = {"peft_type": "BONE", "init_weights": True}

    adapter, current = read_adapter(MemoryCheckpoint(former), config), read_folder(tmp_path)

    assert adapter.method == "bone"
    for module in adapter.modules:
        weight = make_model("llama").get_submodule(module).weight.detach()
        ours, theirs = adapter.delta(module, weight), current.delta(module, weight)
        assert torch.equal(ours.matrix, theirs.matrix)


@pytest.mark.parametrize(
    ("case", "change", "code"),
    [
        ("oft", {"use_cayley_neumann": None}, "bad-config"),
        ("fourierft", {"scaling": "a lot"}, "bad-config"),
        ("road-1", {"variant": "road_3"}, "bad-config"),
        ("road-1", {"group_size": 6}, "shape-mismatch"),
        ("vblora", {"topk": 99}, "shape-mismatch"),
        ("psoft", {"r": 1 << 30}, "shape-mismatch"),
    ],
)
def test_settings_that_a_formula_cannot_do_without_are_named(case, change, code, tmp_path):
    make_adapter("llama", CASES[case][1], tmp_path)
    stated = CASES[case][1].to_dict() | change
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    adapter = read_adapter(MemoryCheckpoint(tensors), stated)
    module = next(iter(adapter.modules))

    with pytest.raises(ModelError, match=f"^{code}: "):
        adapter.delta(module, torch.ones(16, 24 if "down" in module else 16))


@pytest.mark.parametrize("case", ["vblora", "randlora", "pvera"])
def test_a_method_without_what_its_modules_share_is_refused(case, tmp_path):
    make_adapter("llama", CASES[case][1], tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    shared = ("vector_bank", "randlora_A", "randlora_B", "pvera_A", "pvera_B")
    own = {name: t for name, t in tensors.items() if not name.endswith(shared)}

    with pytest.raises(ModelError, match="which all modules share"):
        read_adapter(MemoryCheckpoint(own), CASES[case][1].to_dict())
