"""Extracted adapters against PEFT, transformers and exact singular values."""

import copy
import json
import re
import shutil
import warnings

import huggingface_hub
import numpy as np
import pytest
import tiny_networks
import torch
import transformers
from factories import files_of
from hub_standin import StandInHub
from peft import LoraConfig, PeftModel, get_peft_model
from running import run, short_files
from safetensors.torch import load_file, save_file

import deltadex as dx
from deltadex.errors import RequestError, StoreFull
from deltadex.indexer.hub.session import default_session
from deltadex.provenance.extraction.extraction import ExtractedUpdate, deal_out
from deltadex.provenance.extraction.other_tensors import saved_modules
from deltadex.records import Slot

SMALL = {"num_hidden_layers": 2, "vocab_size": 40}
SIZES, GROUPED = tiny_networks.PLAIN | SMALL, tiny_networks.GROUPED | SMALL
GPT2 = tiny_networks.GPT | {"n_layer": 2, "vocab_size": 40}
MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 40, "initializer_range": 0.04}
WHISPER = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "ffn_dim")}
WHISPER |= {f"{side}_attention_heads": 4 for side in ("encoder", "decoder")} | {"d_model": 32}
WHISPER |= {"vocab_size": 40, "max_source_positions": 12, "max_target_positions": 24}
WHISPER |= {f"{token}_token_id": 0 for token in ("pad", "bos", "eos", "decoder_start")}
LOGITS = 5e-6
"""Largest difference of logits near 1, in float32; a model of two layers adds up some 1e-7 of
rounding, and the numerical rank leaves out what is below 1e-6 of the largest σ."""


def _model(kind, **settings):
    config = getattr(transformers, re.split("For|LMHead|Model", kind)[0] + "Config")
    torch.manual_seed(0)
    return getattr(transformers, kind)(config(**settings))


def _tuned(model, *, keep=(), scale=0.02):
    """A full fine-tune: noise on every parameter but those whose names hold one of `keep`."""
    tuned = copy.deepcopy(model).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for name, values in tuned.named_parameters():
            if not any(word in name for word in keep):
                values += scale * torch.randn_like(values)
    return tuned


def _logits(model):
    torch.manual_seed(2)
    inputs = {"input_ids": torch.randint(3, 40, (2, 7))}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = inputs["input_ids"]
    if model.main_input_name == "input_features":
        inputs.pop("input_ids")
        inputs["input_features"] = torch.randn(2, 80, 24)
    with torch.no_grad():
        answer = model.eval()(**inputs)
    return answer[0] if "logits" not in answer else answer["logits"]


@pytest.fixture(scope="module")
def db():
    with dx.open() as db:
        yield db


def _extract(db, folder, **options):
    model, base = str(folder / "model"), str(folder / "base")
    return db.extract_adapter(model, folder / "out", base=base, **options).to_json()


def _loaded(folder, kind, vocabulary=None, **settings):
    """Base + adapter as PEFT loads it, complete; ties that it leaves are no error."""
    torch.manual_seed(3)
    base = getattr(transformers, kind).from_pretrained(folder / "base", **settings)
    if vocabulary:
        base.resize_token_embeddings(vocabulary)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tie_word_embeddings|.*no longer tied")
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing")
        return PeftModel.from_pretrained(base, folder / "out").eval()


@pytest.mark.parametrize(
    ("kind", "settings", "bias"),
    [
        ("BertForSequenceClassification", SIZES | {"num_labels": 3}, "added"),
        ("GPT2LMHeadModel", GPT2, "added"),
        ("LlamaForCausalLM", GROUPED | {"tie_word_embeddings": True}, None),
        ("Qwen2ForCausalLM", GROUPED, "replaced"),
        ("GPTNeoXForCausalLM", SIZES, "added"),
        ("MPNetForMaskedLM", SIZES, "added"),  # heads tied under other names
        ("MambaForCausalLM", MAMBA, "replaced"),
        ("WhisperForConditionalGeneration", WHISPER, "replaced"),
        pytest.param(
            "T5ForConditionalGeneration",
            tiny_networks.T5 | {"num_layers": 2, "num_decoder_layers": 2, "vocab_size": 40},
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_base_and_adapter_of_full_rank_are_the_model(db, tmp_path, kind, settings, bias):
    base = _model(kind, **settings)
    base.save_pretrained(tmp_path / "base")
    model = _tuned(base, keep=("A_log", "mixer.D"))  # to which modules that hold layers belong
    grows = kind.startswith("Llama")
    if grows:
        torch.manual_seed(4)
        model.resize_token_embeddings(44, mean_resizing=False)
    model.save_pretrained(tmp_path / "model")

    document = _extract(db, tmp_path, rank=48)
    adapted = _loaded(tmp_path, kind, 44 if grows else None)
    logits, config = _logits(adapted), adapted.peft_config["default"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no longer tied")
        merged = adapted.merge_and_unload()

    assert (_logits(base)[..., :40] - _logits(model)[..., :40]).abs().max() > 1e-3
    assert torch.allclose(logits, _logits(model), atol=LOGITS)
    assert torch.allclose(_logits(merged), _logits(model), atol=LOGITS)
    expected, actual = model.state_dict(), merged.state_dict()
    assert all(torch.allclose(actual[n], expected[n], atol=LOGITS) for n in expected)
    assert document["error"] < 1e-5
    assert document["biases"] == bias
    assert config.fan_in_fan_out == (kind == "GPT2LMHeadModel")
    assert bool(document["notes"]) == grows
    assert document["bytes"] == sum(f.stat().st_size for f in (tmp_path / "out").iterdir())


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A base of 96 columns, and a full fine-tune whose singular values decay slowly."""
    folder = tmp_path_factory.mktemp("pair")
    sizes = SIZES | {"hidden_size": 96, "intermediate_size": 192}
    base = _model("BertModel", **sizes)
    base.save_pretrained(folder / "base")
    model = copy.deepcopy(base)
    torch.manual_seed(5)
    with torch.no_grad():
        for number, (name, values) in enumerate(model.named_parameters()):
            if "layer." in name and values.ndim == 2:
                size = (1 + number % 5) * 1e-3
                left = torch.linalg.qr(torch.randn(len(values), 96)).Q
                right = torch.linalg.qr(torch.randn(values.shape[1], 96)).Q
                sigma = size * torch.arange(1, 97) ** -0.5
                values += (left * sigma) @ right.T
    model.save_pretrained(folder / "model")
    return folder


def _updates(folder):
    base, model = (load_file(folder / name / "model.safetensors") for name in ("base", "model"))
    return {n.removesuffix(".weight"): model[n].double() - base[n].double() for n in model}


def _spent(folder, row, delta):
    """|ΔW − BA|² of what is written, and the least that this rank can leave."""
    made = load_file(folder / "out" / "adapter_model.safetensors")
    name, kept = f"base_model.model.{row['module']}", torch.zeros_like(delta)
    if row["rank"]:
        a, b = (made[f"{name}.lora_{factor}.weight"].double() for factor in "AB")
        kept = b @ a
    least = torch.linalg.svdvals(delta)[row["rank"] :].square().sum()
    return float((delta - kept).square().sum()), float(least)


@pytest.mark.parametrize(
    ("size", "dtype"), [({"rank": 16}, "float32"), ({"bytes": "250 KB"}, "float16")]
)
def test_the_error_is_what_is_written_and_within_1_percent_of_exact_svd(db, pair, size, dtype):
    document = _extract(db, pair, **size, dtype=dtype, force=True)
    deltas = _updates(pair)

    spent = [_spent(pair, row, deltas[row["module"]]) for row in document["slots"]]
    norms = [float(deltas[row["module"]].square().sum()) for row in document["slots"]]
    left, least = map(sum, zip(*spent, strict=True))
    for row, (energy, _), norm in zip(document["slots"], spent, norms, strict=True):
        assert row["error"] == pytest.approx((energy / norm) ** 0.5, rel=1e-4)
    assert document["error"] == pytest.approx((left / sum(norms)) ** 0.5, rel=1e-4)
    assert left**0.5 <= 1.01 * least**0.5
    ranks = {row["rank"] for row in document["slots"]}
    assert ranks == {16} if "rank" in size else len(ranks) > 2
    assert document["bytes"] <= 250_000 or "rank" in size
    _loaded(pair, "BertModel")


def test_the_least_budget_is_named_and_enough_and_all_that_is_left_out_counts(db, pair):
    (pair / "out").mkdir(exist_ok=True)
    message = _refusal(db, pair, bytes="1", force=True)
    least = int(re.search(r"(\d+) are needed", message)[1])
    document = _extract(db, pair, bytes=str(least), force=True)
    deltas = _updates(pair)

    spent = sum(_spent(pair, row, deltas[row["module"]])[0] for row in document["slots"])
    whole = sum(float(delta.square().sum()) for delta in deltas.values())
    assert document["bytes"] <= least
    assert [row["rank"] for row in document["slots"]].count(0) == 11
    assert document["error"] == pytest.approx((spent / whole) ** 0.5, rel=1e-4)
    assert str(least - 1) in _refusal(db, pair, bytes=str(least - 1), force=True)


def test_ranks_go_to_the_largest_gain_per_byte_that_fits():
    sigmas = {(2, 2): [9.0, 3.0], (6, 6): [9.0, 9.0], (1, 1): [0.1]}
    updates = [
        ExtractedUpdate(key=(Slot("encoder", place, "q"), ""), shape=shape, sigma=np.array(sigma))
        for place, (shape, sigma) in enumerate(sigmas.items())
    ]

    def ranks(budget):
        return list(deal_out(updates, budget, 4).values())

    # gains per byte: 81/4, 9/4 of the first; 81/12 twice of the second; .01/2 of the third
    wanted = [[0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 2, 0], [2, 2, 0], [2, 2, 1]]
    assert [ranks(n) for n in (15, 16, 64, 112, 128, 136)] == wanted


def test_biases_alone_norms_alone_and_a_head_alone_are_adapters(db, tmp_path):
    kind, settings = "BertForSequenceClassification", SIZES | {"num_labels": 3}
    base = _model(kind, **settings)
    base.save_pretrained(tmp_path / "base")
    for part in ("query.bias", "LayerNorm", "classifier"):
        names = {name for name, _ in base.named_parameters() if part not in name}
        model = _tuned(base, keep=names)
        model.save_pretrained(tmp_path / "model")

        document = _extract(db, tmp_path, force=True)

        assert torch.allclose(_logits(_loaded(tmp_path, kind)), _logits(model), atol=LOGITS)
        assert document["slots"] == []
        assert document["error"] == 0


def test_pythons_module_names_that_end_alike_are_saved_together():
    names = ["pre_classifier.weight", "classifier.weight", "bert.x.weight", "classifier.inner.bias"]

    assert saved_modules({"classifier.weight"}, names, ()) == ["classifier", "pre_classifier"]
    saved = saved_modules({"bert.x.weight"}, names, ("classifier",))
    assert saved == ["bert.x", "classifier", "pre_classifier"]
    assert saved_modules((), names, ()) == []


def _refusal(db, folder, error=RequestError, **options):
    before = {path.name for path in folder.iterdir()}
    with pytest.raises(error) as caught:
        _extract(db, folder, **options)
    assert {path.name for path in folder.iterdir()} == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_extracted_is_one_line_and_leaves_nothing(db, tmp_path):
    base = _model("BertModel", **SIZES)
    for name in ("base", "model"):
        base.save_pretrained(tmp_path / name)
    weights = tmp_path / "model" / "model.safetensors"
    assert "no-update: every tensor equals" in _refusal(db, tmp_path)

    _tuned(base).save_pretrained(tmp_path / "model")
    tensors, content = load_file(weights), weights.read_bytes()
    with short_files(10_000):
        assert "File too large" in _refusal(db, tmp_path, StoreFull)
    assert "--rank or --bytes, not both" in _refusal(db, tmp_path, rank=4, bytes="9MB")
    assert "are needed for one rank" in _refusal(db, tmp_path, bytes="1kb")
    assert "expected a size such as 20MB" in _refusal(db, tmp_path, bytes="much")

    weights.write_bytes(content[:-100])
    assert "truncated" in _refusal(db, tmp_path)
    for name in ("encoder.layer.1.output.dense.weight", "embeddings.word_embeddings.weight"):
        broken = {n: t.clone() for n, t in tensors.items()}
        broken[name][0, 0] = torch.nan
        save_file(broken, weights, metadata={"format": "pt"})
        assert "non-finite" in _refusal(db, tmp_path)
    torch.manual_seed(9)
    strange = {n: torch.randn_like(t) for n, t in tensors.items()}
    save_file(strange, weights, metadata={"format": "pt"})
    assert "wrong-base" in _refusal(db, tmp_path)

    adapter = get_peft_model(base, LoraConfig(target_modules=["query"]))
    adapter.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter").rename(tmp_path / "saved")
    (tmp_path / "model").rename(tmp_path / "before")
    (tmp_path / "saved").rename(tmp_path / "model")
    assert "unsupported-adapter: it is an adapter already" in _refusal(db, tmp_path)


def test_modules_that_hold_every_layer_are_those_that_the_refusal_names(db, tmp_path):
    base = _model("MambaForCausalLM", **MAMBA)
    base.save_pretrained(tmp_path / "base")
    _tuned(base).save_pretrained(tmp_path / "model")
    named = "layer ('backbone.layers.0.mixer', 'backbone.layers.1.mixer'): there is nothing"
    assert named in _refusal(db, tmp_path)


@pytest.mark.slow
def test_changed_experts_are_refused_and_frozen_ones_are_not(db, tmp_path):
    sizes = {"num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24}
    base = _model("Qwen2MoeForCausalLM", **GROUPED, **sizes)
    base.save_pretrained(tmp_path / "base")
    _tuned(base).save_pretrained(tmp_path / "model")
    assert "experts of a mixture are no modules" in _refusal(db, tmp_path, rank=48)

    model = _tuned(base, keep=[".experts."])
    model.save_pretrained(tmp_path / "model")
    _extract(db, tmp_path, rank=48)
    adapted = _loaded(tmp_path, "Qwen2MoeForCausalLM")
    assert torch.allclose(_logits(adapted), _logits(model), atol=LOGITS)


@pytest.mark.slow
def test_a_folder_that_is_taken_is_replaced_only_by_force_and_as_an_adapter(pair, tmp_path):
    out = tmp_path / "out"
    out.mkdir()

    def command(*more):
        place = ("--base", pair / "base", "-o", out, "--rank", 2)
        return run(tmp_path, "extract-adapter", pair / "model", *place, *more)

    assert command().exit_code == 0
    (out / "notes.txt").write_text("mine")
    assert "not empty; --force replaces the adapter" in command().stderr
    assert command("--force").exit_code == 0
    files = {path.name for path in out.iterdir()}
    assert files == {"README.md", "adapter_config.json", "adapter_model.safetensors", "notes.txt"}
    (out / "adapter_config.json").unlink()
    refused = command("--force")
    assert refused.exit_code == 2
    assert "replaces no folder without an adapter_config.json" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_indexed_id_is_extracted_and_its_adapter_is_the_same_model(pair, tmp_path):
    with dx.open(tmp_path / "c.duckdb") as db:
        shutil.copytree(pair / "model", tmp_path / "models" / "model")
        db.index(str(pair / "base"), tmp_path / "models")
        document = db.extract_adapter("model", tmp_path / "made", bytes="900KB").to_json()
        nearest = db.find_similar(str(tmp_path / "made"), k=1)[0]

    settings = json.loads((tmp_path / "made" / "adapter_config.json").read_text())
    assert document["model"] == "model"
    assert settings["base_model_name_or_path"] == str(pair / "base")
    assert settings["rank_pattern"] == settings["alpha_pattern"] != {}
    assert nearest["model"] == "model"
    assert nearest["cosine"] > 0.85


def test_a_model_and_a_base_on_the_hub_are_read_by_ranges(pair, tmp_path, monkeypatch):
    with StandInHub() as hub, dx.open() as db:
        session = default_session()
        monkeypatch.setattr(session, "endpoint", hub.endpoint)
        monkeypatch.setattr(session, "cache_dir", tmp_path / "cache")
        for name in ("base", "model"):
            hub.add(f"org/{name}", files_of(pair / name), parents=["org/base"] * (name == "model"))
        document = db.extract_adapter("org/model", tmp_path / "out", rank=4).to_json()
    huggingface_hub.close_session()
    with dx.open() as db:
        _extract(db, pair, rank=4, force=True)

    weights = "adapter_model.safetensors"
    settings = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (tmp_path / "out" / weights).read_bytes() == (pair / "out" / weights).read_bytes()
    assert (settings["base_model_name_or_path"], document["base"]) == ("org/base", "org/base")
    assert len(settings["revision"]) == 40
    assert not any(tmp_path.rglob("model.safetensors"))
