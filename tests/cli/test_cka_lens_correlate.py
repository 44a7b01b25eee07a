"""`cka`, `logit-lens` and `correlate`, as users run them; results are stored beside the models."""

import json
import shutil
from xml.etree import ElementTree

import pytest
from running import document, run
from tiny_networks import tiny_model

import deltadex as dx


@pytest.fixture(scope="module")
def studied(family, tmp_path_factory):
    """A catalog of the family's models with four studies, a causal model, and texts."""
    folder = tmp_path_factory.mktemp("studied")
    for name in ("c.duckdb", "texts.txt"):
        shutil.copy(family / name, folder)
    tiny_model("gpt2", "ForCausalLM").save_pretrained(folder / "gpt")
    with dx.open(folder / "c.duckdb") as db:
        for model, tokens in (("a-0", 128), ("b-0", 128), ("a-0", 6), ("b-1", 6)):
            db.studies.cka(model, texts=folder / "texts.txt", max_tokens=tokens)
    return folder


def test_cka_beside_the_base_is_stored_and_drawn_at_both_widths(family, studied, tmp_path):
    pages = [tmp_path / "wide.svg", tmp_path / "narrow.html"]

    texts = ("--texts", studied / "texts.txt")
    report = document(studied, "cka", "a-0", *texts, "-o", pages[0])
    again = run(studied, "cka", "a-0", *texts, "-o", pages[1], "--width", "column")

    assert report["against"] == str(family / "base")
    assert report["layers"][0]["debiased"] == pytest.approx(1.0, abs=0.05)
    assert report["n_tokens"] == 24 * 11
    assert "debiased" in again.stdout
    ElementTree.parse(pages[0])
    assert "hidden state 1 beside 1" in pages[1].read_text("utf-8")
    with dx.open(studied / "c.duckdb") as db:
        stored = db.sql("SELECT settings FROM study_results WHERE study = 'cka' AND model = 'a-0'")
        assert len(stored) == 2
        assert {"against", "keep_tokens", "max_tokens", "seed", "texts", "version"} == set(
            json.loads(stored[0]["settings"])
        )


def test_the_logit_lens_of_a_folder_prints_layers_and_draws(studied, tmp_path):
    gpt = studied / "gpt"

    asked = ("logit-lens", gpt, "--texts", studied / "texts.txt")
    report = document(studied, *asked, "--against", gpt, "-o", tmp_path / "l.svg")
    shown = run(studied, *asked, "-o", tmp_path / "l.html")

    assert [layer["layer"] for layer in report["layers"]] == [0, 1, 2, 3]
    assert report["against"]["bits_per_token"]["value"] == 0
    assert report["bits_per_token"] == report["layers"][-1]["bits_per_token"] > 0
    assert "half of the tokens are decided by layer" in shown.stdout
    ElementTree.parse(tmp_path / "l.svg")
    assert "<table>" in (tmp_path / "l.html").read_text("utf-8")


def scores(folder, name, rows):
    (folder / name).write_text("model;accuracy\n" + "".join(f"{m};{a}\n" for m, a in rows))
    return folder / name


def test_correlate_takes_studies_of_equal_settings_and_lists_the_rest(studied, tmp_path):
    file = scores(tmp_path, "s.csv", [("a-0", "0,9"), ("b-0", "0,8"), ("a-1", "0,7")])

    report = document(studied, "correlate", "cka.debiased", file, "--last")
    shown = run(studied, "correlate", "cka.debiased", file)

    assert report["measure"] == "cka.layers.debiased"
    assert [row["name"] for row in report["values"]] == ["a-0", "b-0"]
    assert (report["layer"], report["unmatched"], report["other_settings"]) == ("last", ["a-1"], 1)
    (one,) = report["correlations"]
    assert (one["column"], one["n"], one["rho"] in (1.0, -1.0)) == ("accuracy", 2, True)
    assert "too few to tell (n = 2, 5 are needed)" in shown.stdout
    assert "mean of 3 layers" in shown.stdout
    whole = document(studied, "correlate", "slots.relative_norm", file)
    by_layer = document(studied, "correlate", "slots.relative_norm", file, "--layer", "0")
    assert len(whole["values"]) == 3
    assert whole["layer"] is None
    assert whole["values"] != by_layer["values"]


def test_correlate_over_groups_takes_one_models_newest_study(studied, tmp_path):
    groups = [{"group": f"g{i}", "tokens": 10 * i, "layers": []} for i in range(6)]
    (tmp_path / "size.csv").write_text("language,size\n" + "".join(f"g{i},{i}\n" for i in range(6)))
    with dx.open(studied / "c.duckdb") as db:
        studies = db._catalog.studies(db._catalog.model("a-1").key)
        studies.save("geometry", {"texts": "old"}, {"groups": groups[::-1][:2]})
        studies.save("geometry", {"texts": "new"}, {"groups": groups})
        table = db.studies.correlate("geometry.tokens", tmp_path / "size.csv", over="groups")

    assert [row["value"] for row in table.to_json()["values"]] == [0, 10, 20, 30, 40, 50]
    assert (table[0]["n"], table[0]["rho"]) == (6, 1.0)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("logit-lens", "a-0", "--texts", "T"), 3, "bert is no causal language model"),
        (("correlate", "cka.nothing", "S"), 2, "no measure 'cka.nothing' is stored"),
        (("correlate", "sizes.nothing", "S"), 2, "stored studies: slots, "),
        (("correlate", "cka.debiased", "S", "--column", "x"), 2, "no column 'x'"),
        (("correlate", "slots.fro_norm", "S", "--layer", "9"), 2, "no layer 9; layers: 0 to 1"),
        (("correlate", "cka.debiased", "S", "--over", "groups"), 2, "no column 'group'"),
    ],
)
def test_a_wrong_question_is_one_line(studied, tmp_path, arguments, code, line):
    places = {"T": studied / "texts.txt", "S": scores(tmp_path, "s.csv", [("a-0", 1), ("b-0", 2)])}

    result = run(studied, *(places.get(part, part) for part in arguments))

    assert result.exit_code == code, result.output
    assert line in result.stderr
    assert "Traceback" not in result.output
