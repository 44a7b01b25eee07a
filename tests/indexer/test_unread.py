"""What no slot takes in a model's layers is named, and never counts as unchanged."""

import factories
import peft
import pytest
import torch
import transformers

import deltadex as dx
from deltadex.errors import RequestError
from deltadex.indexer.architecture.placing import MAX_EXPERTS
from deltadex.questions.audit import show_audit
from deltadex.questions.index import show_report
from deltadex.questions.terminal.sections import show_answer

GIZMO = "encoder.layer.{}.attention.self.gizmo.weight"
METHODS = {
    "base_model.model.": peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"]),
    "": peft.LoraConfig(r=2, target_modules="all-linear"),
}
"""By the start of a name in the state dict."""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base with more matrices in one tensor of each layer than are read."""
    folder = tmp_path_factory.mktemp("unread")
    tensors = factories.make_bert(folder / "plain", seed=0)
    draw = torch.Generator().manual_seed(1)
    tensors |= {
        GIZMO.format(n): torch.randn(MAX_EXPERTS + 1, 2, 2, generator=draw) for n in range(2)
    }
    factories.make_checkpoint(folder / "base", tensors, config=folder / "plain")
    return folder, tensors


@pytest.mark.parametrize("prefix", METHODS)
def test_a_whole_state_dict_of_peft_is_not_read_whoever_asks(family, tmp_path, prefix):
    folder, _ = family
    plain = transformers.BertModel.from_pretrained(folder / "plain")
    state = peft.get_peft_model(plain, METHODS[prefix]).state_dict()
    state = {n: torch.ones_like(t) if "lora_" in n else t.clone() for n, t in state.items()}
    state = {prefix + name.removeprefix("base_model.model."): t for name, t in state.items()}
    tuned = factories.make_checkpoint(tmp_path / "models" / "tuned", state, config=folder / "base")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(folder / "plain"), tmp_path / "models").to_json()
        traced = db.trace(str(tuned)).to_json()
        audited = db.audit().to_json()
        with pytest.raises(RequestError, match="not-read"):
            db.extract_adapter(str(tuned), tmp_path / "out", base=str(folder / "plain"))

    assert [row["code"] for row in report["failed"]] == ["not-read"]
    assert "merge_and_unload" in report["failed"][0]["reason"]
    assert traced["verdict"] == "unknown"
    assert "not read" in traced["sentence"].splitlines()[0]
    assert [row["model"] for row in audited["not_read"]] == ["tuned"]
    assert audited["findings"] == []


def indexed(family, tmp_path, changed, **options):
    """The report of a fine-tune that changed the tensors of these names."""
    folder, base = family
    tuned = {n: t * 1.1 if n in changed else t for n, t in base.items()}
    factories.make_checkpoint(tmp_path / "models" / "tuned", tuned, config=folder / "base")
    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(folder / "base"), tmp_path / "models", **options).to_json()
        return report, db.audit().to_json()


QUERY = "encoder.layer.0.attention.self.query.weight"


def test_a_report_says_which_models_rest_on_part_of_their_matrices(family, tmp_path, capsys):
    report, audited = indexed(family, tmp_path, {QUERY, GIZMO.format(1)})
    show_answer(show_report(report))
    show_answer(show_audit(audited))

    first, *more = capsys.readouterr().out.splitlines()
    (row,) = report["partly_read"]
    assert row["note"].startswith("rests on 12 of 14 layer matrices")
    assert GIZMO.format(1) in row["note"]
    assert GIZMO.format(0) not in row["note"]
    assert "1 indexed (1 on part of its matrices)" in first
    assert any("1 model rests on part of its matrices" in line for line in more)
    assert any("1 model not read, or in part" in line for line in more)


def test_what_has_no_slot_and_equals_the_base_is_no_lack(family, tmp_path):
    report, audited = indexed(family, tmp_path, {QUERY})

    assert (report["indexed"], report["partly_read"], audited["not_read"]) == (1, [], [])


def test_a_budget_compares_less_and_says_so(family, tmp_path):
    report, _ = indexed(family, tmp_path, {QUERY}, budget="50%")

    assert "were not read" in report["partly_read"][0]["note"]


def test_an_update_of_nothing_but_what_has_no_slot_is_not_read(family, tmp_path):
    changed, _ = indexed(family, tmp_path / "changed", {GIZMO.format(0)})
    same, _ = indexed(family, tmp_path / "same", ())

    assert [row["code"] for row in changed["failed"]] == ["not-read"]
    assert GIZMO.format(0) in changed["failed"][0]["reason"]
    assert [row["code"] for row in same["failed"]] == ["no-update"]


def test_a_matrix_that_the_base_lacks_is_named(family, tmp_path):
    folder, base = family
    more = factories.finetune(base, seed=3) | {
        "encoder.layer.1.output.gadget.weight": torch.ones(4, 4)
    }
    factories.make_checkpoint(tmp_path / "models" / "tuned", more, config=folder / "base")

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(folder / "base"), tmp_path / "models").to_json()

    assert [row["code"] for row in report["failed"]] == ["layer-mismatch"]
    assert "the base lacks: encoder.1.output.gadget" in report["failed"][0]["reason"]


def test_a_trace_of_equal_layers_is_no_copy_where_some_were_not_compared(family, tmp_path):
    folder, base = family
    copied = factories.make_checkpoint(tmp_path / "copy", base, config=folder / "base")
    tuned = factories.make_checkpoint(
        tmp_path / "tuned", factories.finetune(base, seed=3), config=folder / "base"
    )

    with dx.open(tmp_path / "c.duckdb") as db:
        db.known_bases.add(str(folder / "base"))
        copy, tune = (db.trace(str(model)).to_json() for model in (copied, tuned))

    assert (copy["verdict"], copy["unread"]) == ("unknown", [GIZMO.format(0), GIZMO.format(1)])
    assert tune["verdict"] == "fine-tune"
    assert "2 tensors of its layers not read" in tune["sentence"]


def test_an_adapter_of_which_a_layer_matrix_is_lost_is_refused_by_name(family, tmp_path):
    folder, _ = family
    module = "base_model.model.encoder.layer.{}.attention.self.{}.lora_{}.weight"
    factors = {
        module.format(0, "query", "A"): torch.ones(2, 32),
        module.format(0, "query", "B"): torch.ones(32, 2),
        module.format(1, "value", "A"): torch.ones(2, 32, 1),
        module.format(1, "value", "B"): torch.ones(32, 2, 1),
    }
    factories.write_files(
        tmp_path / "models" / "lora", factories.lora_of(factors, str(folder / "plain"))
    )

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(folder / "plain"), tmp_path / "models").to_json()

    assert [row["code"] for row in report["failed"]] == ["not-read"]
    assert "1 of 2 layer matrices" in report["failed"][0]["reason"]
    assert "layer.1.attention.self.value" in report["failed"][0]["reason"]


def test_a_quantised_copy_is_refused_with_the_name_of_its_original(tmp_path):
    base = factories.make_bert(tmp_path / "base", seed=0)
    factories.save_models(tmp_path, {"tuned": factories.finetune(base, seed=3), "tuned-gptq": base})
    packed = {"quantization_config": {"quant_method": "gptq"}, "_name_or_path": "tuned"}
    factories.configure(tmp_path / "models" / "tuned-gptq", **packed)

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(tmp_path / "base"), tmp_path / "models").to_json()

    (row,) = report["failed"] + report["skipped_models"]
    assert (row["model"], row["code"]) == ("tuned-gptq", "quantized")
    assert row["reason"].endswith("; a copy of tuned, which can be read")
