"""adapter_config.json as found in the wild: partial, misspelt, contradictory."""

import json
import math

import peft
import pytest
import torch
from factories import configure, lora_of, write_files
from hypothesis import given
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key
from peft_adapters import in_memory, make_adapter, make_model, read_folder

import deltadex as dx
from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.adapter_config import MAX_MATCHES, MAX_RANK, SUPPORTED, read_config
from deltadex.indexer.delta import dense

A, B = "base_model.model.h.0.q.lora_A.weight", "base_model.model.h.0.q.lora_B.weight"
TENSORS = {A: torch.eye(2, 4), B: torch.eye(5, 2)}


def adapter(config):
    return read_adapter(in_memory(TENSORS), config)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"lora_alpha": 8, "r": 16}, 4.0),
        ({"lora_alpha": 0}, 0.0),
        ({"lora_alpha": -2}, -1.0),
        ({"lora_alpha": 8, "use_rslora": True}, 8 / math.sqrt(2)),
        ({"lora_alpha": 8, "alpha_pattern": {"q": 2}}, 1.0),
        ({"lora_alpha": 8, "alpha_pattern": None, "rank_pattern": {}}, 4.0),
        ({"r": 2}, None),
        (None, None),
    ],
)
def test_the_scale_is_alpha_over_the_rank_of_the_tensors_and_1_where_unknown(config, expected):
    read = adapter(config)

    scale = float(dense(read.delta("h.0.q", None))[0, 0])
    assert scale == pytest.approx(1.0 if expected is None else expected, rel=1e-6)
    assert any("scale 1" in note for note in read.notes) == (expected is None)


@pytest.mark.parametrize(
    "bad",
    [
        {"lora_alpha": True},
        {"lora_alpha": 10**400},
        {"alpha_pattern": {"q(": 2}},
        {"alpha_pattern": ["q"]},
        {"rank_pattern": {"q": MAX_RANK + 1}},
        {"init_r": 0},
        {"use_rslora": "yes"},
        {"peft_type": 7},
    ],
)
def test_a_setting_of_no_use_is_named(bad):
    with pytest.raises(ModelError, match=next(iter(bad))) as caught:
        adapter({"lora_alpha": 8, **bad})

    assert caught.value.code == "bad-config"
    assert len(caught.value.reason) < 200


@pytest.mark.parametrize("peft_type", sorted({*peft.PeftType} - {*SUPPORTED}))
def test_every_other_method_of_peft_is_refused_by_name(peft_type):
    with pytest.raises(ModelError, match=peft_type.removeprefix("PeftType.")) as caught:
        adapter({"peft_type": str(peft_type), "lora_alpha": 8})

    assert caught.value.code == "unsupported-adapter"


@pytest.mark.parametrize(
    ("peft_type", "method"), [("LN_TUNING", "ln_tuning"), ("new", "new"), (3, None), (None, None)]
)
def test_the_method_of_a_refused_adapter_is_what_its_config_says(tmp_path, peft_type, method):
    write_files(tmp_path, lora_of({"x": torch.zeros(1)}, "base", peft_type=peft_type))

    with dx.open(None) as db:
        db.index("base", tmp_path)
        (row,) = db.models()

    assert (row["kind"], row["status"], row["method"]) == ("adapter", "failed", method)


@pytest.mark.parametrize("peft_type", ["lora", "Lora", "PeftType.LORA", None])
def test_spellings_of_a_method_are_one(peft_type):
    assert adapter({"peft_type": peft_type, "lora_alpha": 8}).method == "lora"


def test_the_tensors_outvote_a_config_of_another_method():
    read = adapter({"peft_type": "LOHA", "alpha": 8})

    assert read.method == "lora"
    assert any("LOHA" in note for note in read.notes)


@pytest.mark.parametrize(
    "variant",
    [
        {"target_parameters": ["mlp.w1"]},
        {"layer_replication": [[0, 2], [1, 2]]},
        {"use_qalora": True},
        {"use_bdlora": {"nblocks": 2}},
        {"kasa_config": {"beta": 1e-4}},
        {"monteclora_config": {"num_samples": 8}},
        {"arrow_config": {"top_k": 2}},
        *({"init_lora_weights": way} for way in ("loftq", "corda", "lora_ga", "pissa_niter_16")),
        {"init_lora_weights": "olora", "fan_in_fan_out": True},
    ],
)
def test_variants_whose_update_cannot_be_known_are_refused(variant):
    with pytest.raises(ModelError, match=r"^unsupported-adapter: "):
        adapter({"peft_type": "LORA", "lora_alpha": 8, **variant})


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"init_lora_weights": "sparkle"}, "sparkle"),
        ({"alora_invocation_tokens": [1, 2]}, "aLoRA"),
        ({"alpha_pattern": {"nowhere": 2}}, "nowhere"),
        ({"rank_pattern": {"q": 2, "elsewhere": 4}}, "elsewhere"),
        ({"target_modules": ["q", "v_proj"]}, "v_proj"),
    ],
)
def test_what_is_odd_but_harmless_is_noted(config, note):
    (said,) = adapter({"lora_alpha": 8, **config}).notes

    assert note in said


@pytest.mark.parametrize(
    "config",
    [
        *({"init_lora_weights": start} for start in (False, None, "gaussian", "mica", "true")),
        *({"target_modules": targets} for targets in ("q", r".*\.(q|v)$", None, {"q": 1}, ["q"])),
    ],
)
def test_starts_that_leave_w_alone_and_any_form_of_target_modules_leave_nothing_to_note(config):
    read = adapter({"peft_type": "LORA", "lora_alpha": 8, "r": 2, **config})

    assert (read.method, read.notes) == ("lora", ())


PATTERNS = ["q", "layers.0.q", r"layers\.\d+\.q", ".*q", "^q", "s.0.q", "q$", "^m.layers.1.q"]


@given(
    patterns=st.lists(st.sampled_from(PATTERNS), unique=True),
    module=st.sampled_from(["m.layers.0.q", "m.layers.1.q", "q", "m.layers.0.xq"]),
)
def test_patterns_match_as_in_peft(patterns, module):
    stated = {pattern: float(number) for number, pattern in enumerate(patterns)}
    expected = stated.get(get_pattern_key(stated.keys(), module), -1.0)

    settings = read_config({"lora_alpha": -1, "alpha_pattern": stated})

    assert settings.alpha_of(module) == expected


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
    ("config", "change", "said"),
    [
        (peft.LoKrConfig(r=1), {"r": 100_000}, "100000, the tensors have 1 (in 4 of 4"),
        (
            peft.LoraConfig(r=4, rank_pattern={"key": 2}),
            {"rank_pattern": {"layer.1.attention.self.key": 3, "key": 2}},
            "3, the tensors have 2 (in 1 of 4",
        ),
    ],
    ids=["lokr", "pattern"],
)
def test_a_rank_that_is_not_the_tensors_is_noted_module_by_module(tmp_path, config, change, said):
    config.target_modules = {"query", "key"}
    make_adapter("bert", config, tmp_path)
    assert read_folder(tmp_path).notes == ()

    configure(tmp_path, "adapter_config.json", **change)
    notes = read_folder(tmp_path).notes
    assert notes == (f"adapter_config.json says r = {said} modules)",)


def test_patterns_are_not_matched_with_any_number_of_modules():
    config = read_config(LORA | {"alpha_pattern": {f"m{n}": 2 for n in range(4096)}})
    config.require_matchable(MAX_MATCHES // 4096)

    with pytest.raises(ModelError, match="bad-config"):
        config.require_matchable(MAX_MATCHES // 4096 + 1)
