"""Adapters against their merges, and against the families that they are of or not."""

import shutil

import pytest
import torch
from catalogs import linear_sketch_of
from factories import configure
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from deltadex import questions
from deltadex.errors import ModelError, RequestError
from deltadex.indexer import IndexOptions, index_family
from deltadex.questions.face import serving
from deltadex.search import StoredQuery, find_similar
from deltadex.store import Filters


def _bert():
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return BertModel(BertConfig(**sizes, intermediate_size=48, vocab_size=40))


def _gpt2():
    return GPT2Model(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=40, n_positions=16))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return _made(tmp_path_factory.mktemp("bert"), _bert, ["query", "output.dense"])


@pytest.fixture
def made(bert, tmp_path):
    return shutil.copytree(bert, tmp_path, dirs_exist_ok=True)


def _made(folder, make, targets):
    """A base, two adapters of it and the first one merged."""
    torch.manual_seed(0)
    make().save_pretrained(folder / "base")
    for name in ("adapter", "other"):
        model = type(make()).from_pretrained(folder / "base")
        tuned = get_peft_model(model, LoraConfig(r=3, target_modules=targets))
        for key, parameter in tuned.named_parameters():
            if "lora_B" in key:
                parameter.data = 0.02 * torch.randn_like(parameter)
        tuned.save_pretrained(folder / "models" / name)
        if name == "adapter":
            tuned.merge_and_unload().save_pretrained(folder / "models" / "merged")
    return folder


def _index(folder, catalog, base=None, **options):
    base = base or str(folder / "base")
    return index_family(catalog, IndexOptions(base=base, source=folder / "models", **options))


def _rewrite(folder, change):
    path = folder / "adapter_model.safetensors"
    save_file(change(load_file(path)), path)


def _name(folder, base):
    """The adapter, with this as the only name of its base."""
    configure(folder, "adapter_config.json", base_model_name_or_path=base)
    (folder / "README.md").unlink()


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("budget", [None, "20%"])
def test_an_adapter_its_merged_checkpoint_and_its_factors_mixed_are_neighbours(
    kind, budget, bert, tmp_path, catalog
):
    made = (
        _made(tmp_path, _gpt2, ["c_attn", "c_proj"])
        if kind == "gpt2"
        else shutil.copytree(bert, tmp_path, dirs_exist_ok=True)
    )
    turned, mix = made / "models" / "turned", torch.randn(3, 3) + 3 * torch.eye(3)
    shutil.copytree(made / "models" / "adapter", turned)
    _rewrite(
        turned,
        lambda tensors: {
            name: mix @ t if "lora_A" in name else t @ torch.linalg.inv(mix)
            for name, t in tensors.items()
        },
    )

    report = _index(made, catalog, budget=budget)

    def near(id):
        where = Filters(where=f"id = '{id}'")
        return find_similar(catalog, StoredQuery("adapter"), filters=where, k=1).neighbours[0]

    assert report.indexed == 4, report.refused
    if budget is None:
        assert near("turned").score >= 0.9999
        assert near("merged").cosine >= 0.99 > near("other").cosine
    assert near("merged").cosine > 0.9 > near("other").cosine
    low, dense = (linear_sketch_of(catalog, id).pooled for id in ("adapter", "merged"))
    # the merged weights are rounded, by 6e-8 of themselves; the update is 1e-2 of them or more
    assert abs(low - dense).max() < 1e-4 * abs(low).max()


@pytest.mark.parametrize("scale", [0.0, 1e-18, 1e-24, 1e-42])
def test_adapters_need_no_base_and_one_of_next_to_nothing_is_no_update(made, catalog, scale):
    _rewrite(
        made / "models" / "other",
        lambda tensors: {n: t * scale if "lora_B" in n else t for n, t in tensors.items()},
    )
    (made / "models" / "merged" / "model.safetensors").unlink()

    report = _index(made, catalog, base="base")

    assert {o.model.id: o.code for o in report.refused if o.model.id != "merged"} == {
        "other": "no-update"
    }
    assert report.indexed == 1


@pytest.mark.parametrize(
    ("factor", "value", "recipe"),
    [("lora_A", 1e300, "sketch"), ("lora_B", 3e38, "mean-factors"), ("lora_B", 1e18, "sketch")],
)
def test_an_update_that_overflows_is_not_said_to_equal_the_base(
    made, catalog, factor, value, recipe
):
    dtype = torch.float64 if value > torch.finfo(torch.float32).max else torch.float32
    _rewrite(
        made / "models" / "other",
        lambda tensors: {
            n: torch.full_like(t.to(dtype), value) if factor in n else t for n, t in tensors.items()
        },
    )

    options = IndexOptions(
        base=str(made / "base"), models=(str(made / "models" / "other"),), recipes=(recipe,)
    )
    (refused,) = index_family(catalog, options).refused

    assert refused.code == "non-finite"
    assert "overflows: its norm is above" in refused.reason


def test_an_adapter_that_names_no_base_stays_if_it_fits(made, catalog):
    _name(made / "models" / "other", None)
    (made / "models" / "merged" / "model.safetensors").unlink()

    _index(made, catalog, base="base")

    assert catalog.model("other").status == "indexed"
    assert any("names no base" in note for note in catalog.model("other").notes)

    _rewrite(
        made / "models" / "other",
        lambda ts: {n: t[:, :5].contiguous() if "lora_A" in n else t for n, t in ts.items()},
    )
    _index(made, catalog, base="base")

    assert catalog.model("other").code == "base-unknown"


def test_members_of_other_families_are_skipped_by_the_base_they_name(made, catalog):
    _name(made / "models" / "other", "meta-llama/Llama-3.2-1B")

    report = _index(made, catalog)

    (refused,) = report.refused
    assert (refused.code, refused.status) == ("other-base", "skipped")
    assert "meta-llama/Llama-3.2-1B" in refused.reason


@pytest.fixture
def named(tmp_path):
    """Adapters under one mere name of a base: three of a GPT-2, one of a BERT with its own config,
    one of a BERT with the config of a GPT-2."""
    torch.manual_seed(0)
    for make, targets, names in (
        (_gpt2, ["c_attn"], ("a", "b", "c")),
        (_bert, ["query", "value"], ("bert", "mixed")),
    ):
        for name in names:
            config = LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
            get_peft_model(make(), config).save_pretrained(tmp_path / name)
            _name(tmp_path / name, "someone/tiny")
    shutil.copy(tmp_path / "a" / "adapter_config.json", tmp_path / "mixed" / "adapter_config.json")
    return tmp_path


STRANGE = {
    "bert": "encoder.0.q with the shape (32, 32), its models have no encoder",
    "mixed": "target_modules 'c_attn' fit no module, the tensors are of 'encoder.layer.0.",
}


def test_an_adapter_of_another_architecture_is_no_member_whatever_base_it_names(named, catalog):
    report = index_family(catalog, IndexOptions(base="someone/tiny", source=named))

    assert report.indexed == 3
    assert {o.model.id: o.code for o in report.refused} == dict.fromkeys(STRANGE, "other-base")
    assert all(STRANGE[o.model.id] in o.reason for o in report.refused)


@pytest.mark.parametrize("name", STRANGE)
def test_nor_is_it_a_query_or_an_upload(named, tmp_path, name):
    with questions.open(tmp_path / "c.duckdb") as db:
        db.add(*(named / id for id in "abc"), base="someone/tiny")
        reading = serving.adapter_reading(db, "someone/tiny", may_open_base=False)

        with pytest.raises(RequestError, match="other-base: ") as query:
            db.find_similar(str(named / name))
        with pytest.raises(ModelError, match="other-base: ") as upload:
            serving.read_adapter(named / name, reading)

    assert STRANGE[name] in str(query.value)
    assert STRANGE[name] in str(upload.value)


def test_one_model_of_another_base_does_not_decide_what_a_family_has(named, catalog):
    index_family(catalog, IndexOptions(base="someone/tiny", models=(str(named / "bert"),)))

    report = index_family(catalog, IndexOptions(base="someone/tiny", source=named))

    assert {id: catalog.model(id).status for id in "abc"} == dict.fromkeys("abc", "indexed")
    assert [o.model.id for o in report.refused] == ["mixed"]
