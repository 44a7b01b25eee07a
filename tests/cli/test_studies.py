"""The study commands on a tiny family, as users run them."""

import json

import pytest
from click.testing import CliRunner
from factories import make_family

from deltadex.cli import main

TEXTS = [" ".join(str(5 + (i * 7 + j) % 50) for j in range(12)) for i in range(24)]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    result = run(
        folder, "index", str(folder / "base"), str(models), "--labels", str(models / "labels.csv")
    )
    assert result.exit_code == 0, result.output
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    return folder


def run(folder, *arguments):
    return CliRunner().invoke(main, [*arguments, "--db", str(folder / "c.duckdb")])


def document(folder, *arguments):
    result = run(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_rank_of_one_model_is_kept_and_drawn(family, tmp_path):
    first = document(family, "rank", "a-0", "-o", str(tmp_path / "r.png"))
    again = document(family, "rank", "a-0", "-o", str(tmp_path / "r.png"))

    assert first == again
    assert {"name", "curves", "slots", "thetas", "failed", "picture"} <= set(first)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_rank_of_a_family_has_means_with_standard_errors(family):
    report = document(family, "rank", "--family", str(family / "base"))

    points = [p for c in report["curves"] for p in c["points"] if p["count"] > 1]
    assert points
    assert all(p["standard_error"] is not None for p in points)


def test_rank_of_the_weights_differs_from_that_of_the_update(family):
    update = document(family, "rank", "a-0")
    weights = document(family, "rank", "a-0", "--weights")

    assert weights["subject"] == "weights"
    assert update["slots"] != weights["slots"]


def test_components_against_the_base_name_what_was_edited(family, tmp_path):
    report = document(
        family,
        "components",
        "a-0",
        "--against",
        str(family / "base"),
        "--texts",
        str(family / "texts.txt"),
        "-o",
        str(tmp_path / "c.html"),
    )

    (stack,) = report["stacks"].values()
    assert stack["error"] < 1e-5
    assert stack["most_edited"]["layer"] >= 1
    assert "prefers-color-scheme" in (tmp_path / "c.html").read_text("utf-8")


def test_a_path_needs_no_catalog(family, tmp_path):
    result = CliRunner().invoke(
        main,
        [
            "components",
            str(family / "models" / "a-0"),
            "--texts",
            str(family / "texts.txt"),
            "--json",
            "--db",
            str(tmp_path / "none.duckdb"),
        ],
    )

    assert result.exit_code == 0, result.output
    assert not (tmp_path / "none.duckdb").exists()


def test_geometry_and_layers_print_their_reports(family, tmp_path):
    texts = ("--texts", str(family / "texts.txt"))
    geometry = document(family, "geometry", "a-0", *texts, "-o", str(tmp_path / "g.svg"))
    layers = document(family, "layers", "a-0", *texts, "-o", str(tmp_path / "l.svg"))

    assert (
        geometry["groups"][0]["layers"][0]["anisotropy"]["rows"] == geometry["groups"][0]["tokens"]
    )
    assert {c["name"] for c in layers["controls"]} >= {"classifier", "norm-only", "untrained"}
    assert (tmp_path / "g.svg").exists()
    assert (tmp_path / "l.svg").exists()


def test_broken_rows_are_named(family, tmp_path):
    (tmp_path / "t.csv").write_text(
        "id,text\n" + "\n".join(f"{i},{t}" for i, t in enumerate(TEXTS)) + "\n99,\n"
    )

    report = document(family, "components", "a-0", "--texts", str(tmp_path / "t.csv"))

    assert report["broken_rows"] == ["t.csv:25: no text"]


def test_cut_texts_are_counted_on_stderr_and_in_the_document(family):
    arguments = ("components", "a-0", "--texts", str(family / "texts.txt"), "--max-tokens", "6")

    result = run(family, *arguments, "--json")

    report = json.loads(result.stdout)
    assert (report["texts_cut"], report["longest_text"], report["max_tokens"]) == (24, 12, 6)
    assert "24 of 24 texts were cut to 6 tokens; --max-tokens N reads more" in result.stderr


def test_diff_says_in_a_sentence_what_differs(family):
    report = document(family, "diff", "a-0", "b-0")

    assert report["sentence"].startswith("a-0 and b-0 ")
    assert report["most_different"]
    assert report["cosine"] < 1


def test_a_profile_needs_a_tokenizer_and_says_so(family):
    result = run(family, "profile", "a-0")

    assert result.exit_code == 3
    assert "tokenizer" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("rank",), 2, "MODEL"),
        (("rank", "a-0", "-o", "x.gif"), 3, ".png"),
        (("rank", "nobody"), 2, "no model"),
        (("components", "./nowhere"), 2, "no such folder"),
        (("diff", "a-0", "nobody"), 2, "no model"),
        (("rank", "--family", "nothing"), 2, "no indexed model"),
        (("geometry", "a-0", "--texts", __file__, "--keep-tokens", "99"), 2, "x>=100"),
    ],
)
def test_a_wrong_question_is_one_line(family, arguments, code, line):
    result = run(family, *arguments)

    assert result.exit_code == code
    assert line in result.stderr
    assert "Traceback" not in result.output
