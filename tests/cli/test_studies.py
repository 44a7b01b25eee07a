"""The study commands on a tiny family, as users run them."""

import json
import shutil

import peft
import pytest
import transformers
from factories import configure, make_bert
from running import TEXTS, document, run

from deltadex.questions.terminal.sections import show_answer
from deltadex.study.geometry.geometry import GeometryTable


def test_rank_of_one_model_is_kept_and_drawn(family, tmp_path):
    first = document(family, "rank", "a-0", "-o", tmp_path / "r.png")
    again = document(family, "rank", "a-0", "-o", tmp_path / "r.png")

    assert first == again
    assert {"name", "curves", "slots", "thetas", "failed", "picture"} <= set(first)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_spectra_of_update_and_weights_are_kept_and_drawn(family, tmp_path):
    drawn = ("-o", tmp_path / "s.html", "--draws", "2")
    first = document(family, "spectrum", "a-0", *drawn)

    assert first == document(family, "spectrum", "a-0", *drawn)
    assert {m["subject"] for m in first["matrices"]} == {"update", "weights"}
    assert {m["verdict"] for m in first["matrices"]} == {"too few"}
    weights = document(family, "spectrum", family / "base", "--weights")
    assert weights["subjects"] == ["weights"]
    page = (tmp_path / "s.html").read_text("utf-8")
    assert "too few eigenvalues" in page
    assert "<table>" in page
    shown = run(family, "spectrum", "a-0").output
    assert "too few" in shown
    assert "no exponent" in " ".join(shown.split())


def test_components_against_the_base_name_what_was_edited(family, tmp_path):
    against = ("--against", family / "base", "--texts", family / "texts.txt")

    report = document(family, "components", "a-0", *against, "-o", tmp_path / "c.html")

    (stack,) = report["stacks"].values()
    assert stack["error"] < 1e-5
    layer, term = stack["most_edited"]["layer"], stack["most_edited"]["term"]
    edited = stack["local_shift"][layer][stack["local_terms"].index(term)]
    assert edited == max(map(max, stack["local_shift"])) > 0
    assert "prefers-color-scheme" in (tmp_path / "c.html").read_text("utf-8")


def test_a_path_needs_no_catalog(family, tmp_path):
    document(tmp_path, "components", family / "models" / "a-0", "--texts", family / "texts.txt")

    assert not (tmp_path / "c.duckdb").exists()


def test_geometry_and_layers_print_their_reports(family, tmp_path):
    texts = ("--texts", family / "texts.txt")
    geometry = document(family, "geometry", "a-0", *texts, "-o", tmp_path / "g.svg")
    layers = document(family, "layers", "a-0", *texts, "-o", tmp_path / "l.svg")
    shown = run(family, "layers", "a-0", *texts).stdout

    assert (
        geometry["groups"][0]["layers"][0]["anisotropy"]["rows"] == geometry["groups"][0]["tokens"]
    )
    assert {c["name"] for c in layers["controls"]} >= {"classifier", "norm-only", "untrained"}
    assert "n50, n90: dimensions" in shown
    assert "mean norms" in shown
    assert (tmp_path / "g.svg").exists()
    assert (tmp_path / "l.svg").exists()


@pytest.mark.slow
def test_geometry_shows_every_estimator_divergences_with_their_floor_and_contrasts(
    family, tmp_path, capsys
):
    lines = [f"{i},{group},{t}" for group in ("aaa_Latn", "aaa_Cyrl") for i, t in enumerate(TEXTS)]
    (tmp_path / "t.csv").write_text("\n".join(["id,group,text", *lines]))
    asked = (
        *("geometry", "a-0", "--texts", tmp_path / "t.csv", "--reference", "aaa_Latn"),
        *("--untrained", "--scrambled"),
    )

    everything = run(family, *asked, "--all").stdout
    kept = document(family, *asked)
    capsys.readouterr()
    show_answer(GeometryTable(kept).sections())
    printed = capsys.readouterr().out

    for line in (
        "TwoNN (facco), N = ",
        "aaa_Latn, untrained",
        "too few",
        "divergence from aaa_Latn: KL to it, softmax of means (nats)",
        "aaa_Latn: trained less untrained",
    ):
        assert line in printed
    assert "anisotropy, un-centred" not in printed
    assert "anisotropy, un-centred" in everything
    assert {c["condition"] for c in kept["contrasts"]} == {"untrained", "scrambled"}
    assert [g["group"] for g in kept["untrained"]] == [g["group"] for g in kept["groups"]]
    stored = document(family, "sql", "SELECT settings FROM studies WHERE study = 'geometry'")
    assert "scrambled" in json.dumps(stored)


def test_cut_texts_are_counted_on_stderr_and_in_the_document(family):
    arguments = ("components", "a-0", "--texts", family / "texts.txt", "--max-tokens", "6")

    result = run(family, *arguments, "--json")

    report = json.loads(result.stdout)
    assert (report["texts_cut"], report["longest_text"], report["max_tokens"]) == (24, 12, 6)
    assert "24 of 24 texts were cut to 6 tokens; --max-tokens N reads more" in result.stderr


def test_a_pair_has_one_cosine_in_every_answer(family):
    near = document(family, "find-similar", "a-0", "--explain")

    for neighbour, explained in zip(near["neighbours"], near["explanations"], strict=True):
        difference = document(family, "diff", "a-0", neighbour["model"])
        assert difference["cosine"] == pytest.approx(neighbour["cosine"], abs=1e-9)
        assert explained["similarity"] == pytest.approx(neighbour["cosine"], abs=1e-9)
        assert f"cosine {neighbour['cosine']:.3f})" in difference["sentence"]
        assert difference["update_cosine"] != difference["cosine"]
        assert "cosine" not in difference["slots"][0]


TEXT_STUDIES = ("components", "cka")


STRANGER = "someone/other-base"


@pytest.fixture(scope="module")
def adapters(family):
    """Adapters of the family's base: `own` as PEFT saves it, and one that names `STRANGER`."""
    folder = family / "adapters"
    plain = transformers.AutoModel.from_pretrained(family / "base")
    config = peft.LoraConfig(r=2, target_modules=["query"], init_lora_weights=False)
    peft.get_peft_model(plain, config).save_pretrained(folder / "own")
    (folder / "own" / "README.md").unlink()
    stranger = shutil.copytree(folder / "own", folder / "stranger")
    configure(stranger, "adapter_config.json", base_model_name_or_path=STRANGER)
    return folder


def asked_of(family, study, model):
    texts = ("--texts", family / "texts.txt") if study in TEXT_STUDIES else ()
    return (*study.split(), str(model), *texts)


@pytest.mark.parametrize("study", ["rank", "rank --weights", "components"])
def test_no_study_takes_an_adapter_of_another_base_for_one_of_the_only_family(
    family, adapters, study
):
    result = run(family, *asked_of(family, study, adapters / "stranger"))

    assert result.exit_code == 2, result.output
    assert "stranger: other-base: names base 'someone/other-base'" in result.stderr
    assert "--base BASE says on which it is studied" in result.stderr


@pytest.mark.parametrize("study", ["rank", "components"])
def test_a_given_base_counts_more_than_an_adapters_config_and_the_answer_says_so(
    family, adapters, study
):
    asked = (*asked_of(family, study, adapters / "stranger"), "--base", family / "base")

    (note,) = document(family, *asked)["base_notes"]
    none = document(family, *asked_of(family, study, adapters / "own"))["base_notes"]

    assert "stranger names base 'someone/other-base'; it is studied on " in note
    assert note in run(family, *asked).stdout
    assert none == []


@pytest.mark.slow
def test_an_indexed_model_keeps_its_family_and_a_refused_one_has_none(family, adapters, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path / "c.duckdb")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    stranger, base = str(adapters / "stranger"), family / "base"
    assert run(tmp_path, "add", stranger, "--base", base).exit_code == 0
    refused = [run(tmp_path, *asked_of(tmp_path, "cka", m)) for m in ("stranger", stranger)]

    again = ("--alias", STRANGER, "--retry-failed")
    assert run(tmp_path, "index", base, str(adapters), *again).exit_code == 0
    ranked = run(tmp_path, "rank", "stranger")

    assert [result.exit_code for result in refused] == [2, 2]
    assert all("other-base: names base 'someone/other-base'" in r.stderr for r in refused)
    assert ranked.exit_code == 0, ranked.output


@pytest.mark.parametrize("study", ["rank", "components"])
def test_a_checkpoint_that_owes_the_base_nothing_is_not_compared_with_it(family, tmp_path, study):
    make_bert(tmp_path / "other", seed=9)
    against = ("--against", family / "base") if study == "components" else ()

    result = run(family, *asked_of(family, study, tmp_path / "other"), *against)

    assert result.exit_code == 2, result.output
    assert "wrong-base: not a fine-tune of" in result.stderr
