"""Several models of one repository are members of their own, as they are in a folder."""

import json

import torch
from factories import files_of
from gguf_files import convert, make_model

import deltadex as dx
from deltadex.indexer.hub import HubModel, describe, run_session

ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
FULL = ("config.json", "model.safetensors")


def names(*paths):
    """The names of the models in a repository of these files."""
    siblings = [{"rfilename": path} for path in paths]
    model = HubModel.from_json({"id": "org/x", "siblings": siblings})
    return {one.name: one.kind for one in model.models()}


def inside(folder, files):
    return [f"{folder}/{name}" for name in files]


def test_full_checkpoints_in_folders_count_where_the_top_has_none_and_is_no_pipeline():
    assert names(*FULL, *inside("checkpoint-5", FULL)) == {"org/x": "full"}
    assert names("modules.json", *inside("0_Transformer", FULL)) == {"org/x:0_Transformer": "full"}
    assert names("model_index.json", *inside("text_encoder", FULL)).keys() == {"org/x"}
    assert names("README.md", *inside("onnx", FULL)).keys() == {"org/x"}


def test_a_family_on_the_hub_has_the_adapters_of_its_repositories(family, tmp_path):
    files = family.repos["org/adapter"].files
    moved = {
        f"{folder}/{name}": content
        for folder in ("checkpoint-100", "final/adapter")
        for name, content in files.items()
    }
    family.add("org/several", moved, parents=("org/base",), relation="adapter")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index("org/base", hub=True).to_json()
        rows = {row["model"]: row for row in db.models()}
        near = db.find_similar("org/several:checkpoint-100", k=1).to_json()["neighbours"][0]

    several = [id for id in rows if id.startswith("org/several")]
    assert several == ["org/several:checkpoint-100", "org/several:final/adapter"], report
    assert {rows[id]["run"] for id in several} == {"org/several"}
    assert near["cosine"] > 0.9999
    assert describe("org/several:final/adapter", session=run_session()).kind == "adapter"


def test_each_adapter_of_a_repository_belongs_to_the_base_that_its_own_config_names(
    family, tmp_path
):
    files = family.repos["org/adapter"].files
    bases = {
        "ours": "org/base",
        "below": "org/child",
        "theirs": "org/elsewhere",
        "local": "/tmp/x/other",
    }
    moved = {}
    for folder, base in bases.items():
        settings = json.loads(files["adapter_config.json"]) | {"base_model_name_or_path": base}
        moved |= {f"{folder}/{name}": content for name, content in files.items()}
        moved[f"{folder}/adapter_config.json"] = json.dumps(settings).encode()
    family.add("org/mixed", moved, parents=("org/base", "org/elsewhere"), relation="adapter")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index("org/base", hub=True).to_json()
        rows = db.models()
        added = db.add("org/mixed:theirs", base="org/base").to_json()

    mixed = {
        row["model"].partition(":")[2]: row["base_raw"]
        for row in rows
        if row["model"].startswith("org/mixed") and row["status"] == "indexed"
    }
    assert mixed == {"ours": "org/base", "below": "org/child", "local": "org/base"}
    refused = [r for r in report["skipped_models"] if r["model"] == "org/mixed:theirs"]
    assert [(r["code"], r["reason"]) for r in refused] == [
        ("other-base", "names base 'org/elsewhere'")
    ]
    assert added["skipped_models"][0]["code"] == "other-base"


def test_of_the_ggufs_of_a_repository_the_one_that_can_be_read_is(family, tmp_path):
    model = make_model("llama")
    model.save_pretrained(tmp_path / "base")
    family.add("org/llama", files_of(tmp_path / "base"))
    noise = torch.Generator().manual_seed(0)
    for tensor in model.parameters():
        tensor.data += 0.01 * torch.randn(tensor.shape, generator=noise)
    q8 = convert("llama", model.state_dict(), tmp_path / "m").read_bytes()
    copies = {"m.Q4_K_M.gguf": b"GGUF", "m.Q8_0.gguf": q8}
    family.add("org/GGUF", copies, parents=("org/llama",), relation="quantized")
    family.add("org/Q4", {"m.Q4_K_M.gguf": b"GGUF"}, parents=("org/llama",), relation="quantized")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index("org/llama", hub=True).to_json()

    assert report["indexed"] == 1
    assert report["bytes_read"] < 1.5 * len(q8) + 2 * model.num_parameters() * 4
    assert [(r["model"], r["code"]) for r in report["skipped_models"]] == [("org/Q4", "quantized")]
