"""`deltadex ablation` as users run it."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from deltadex.cli import main
from deltadex.study.ablation.measures import TRAININGS, Training

sys.path.append(str(Path(__file__).parents[1] / "study"))

from tiny_language_model import TEXTS, save_masked

SUBSETS = "none i h f c ih if ic hf hc fc ihf ihc ifc hfc ihfc"
QUICK = Training(epochs=1, batch=256, learning_rates=(1e-2,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablation")
    save_masked(folder / "model")
    save_masked(folder / "headless", head=False)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for key in TRAININGS:
        monkeypatch.setitem(TRAININGS, key, QUICK)


def run(folder, *arguments, model="model"):
    return CliRunner().invoke(
        main,
        [
            *("ablation", str(folder / model), "--texts", str(folder / "texts.txt")),
            *("--db", str(folder / "none.duckdb"), "--runs", "2", "--most-items", "150"),
            *arguments,
        ],
    )


@pytest.mark.slow
def test_one_document_has_every_measure_and_the_picture(folder, tmp_path):
    result = run(folder, "--json", "-o", str(tmp_path / "a.html"))

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [m["key"] for m in report["measures"]] == [
        *("masked-own", "masked-trained", "senses-knn", "senses-mlp"),
        "tagging",
    ]
    assert all(len(m["subsets"]) == len(m["agreement"]) == 16 for m in report["measures"])
    assert report["broken_rows"] == []
    assert "<table" in (tmp_path / "a.html").read_text("utf-8")
    assert not list((tmp_path / "cache").rglob("*.jsonl"))


def test_the_table_has_a_row_for_each_subset_and_says_what_is_missing(folder):
    result = run(folder, "--tasks", "masked", model="headless")

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:18]] == SUBSETS.split()
    assert "masked-own" in result.stdout
    assert "ships no language head" in result.stdout


@pytest.mark.slow
def test_own_senses_and_tags_are_read(folder, tmp_path):
    rows = [
        {"text": f"a {word} {n} sun", "word": 1, "lemma": "x", "sense": word}
        for n in range(20)
        for word in ("cat", "dog")
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "t.conll").write_text(
        "sun A\nrain B\n\n" * 3 + "".join(f"cat{'s' * n} A\ndog B\n\n" for n in range(30))
    )

    result = run(
        folder,
        *("--senses", str(tmp_path / "s.jsonl"), "--tags", str(tmp_path / "t.conll")),
        *("--tasks", "senses,tagging", "--json"),
    )

    assert result.exit_code == 0, result.output
    by_key = {m["key"]: m for m in json.loads(result.stdout)["measures"]}
    assert by_key["senses-knn"]["settings"]["lemmas"] == 1
    assert by_key["tagging"]["settings"]["tags"] == ["A", "B"]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("--tasks", "masked,nothing"), 2, "no task nothing"),
        (("--tasks", ","), 2, "there are masked, senses, tagging"),
        (("--tags", __file__), 3, "test_ablation_command"),
        (("--runs", "0"), 2, "x>=1"),
    ],
)
def test_a_wrong_question_is_one_line(folder, arguments, code, line, tmp_path):
    if "--tags" in arguments:
        (tmp_path / "test_ablation_command.conll").write_text("alone\n")
        arguments = ("--tags", str(tmp_path / "test_ablation_command.conll"))

    result = run(folder, *arguments)

    assert result.exit_code == code, result.output
    assert line in result.stderr
    assert "Traceback" not in result.output
