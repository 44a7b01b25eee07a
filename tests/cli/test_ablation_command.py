"""`deltadex ablation` as users run it."""

import json

import pytest
import running
from tiny_language_model import TEXTS, save_masked

from deltadex.study.ablation.measures import TRAININGS, Training

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
    asked = ("--texts", folder / "texts.txt", "--runs", 2, "--most-items", 150, *arguments)
    return running.run(folder / "none.duckdb", "ablation", folder / model, *asked)


def test_the_table_has_a_row_for_each_subset_and_says_what_is_missing(folder):
    result = run(folder, "--tasks", "masked", model="headless")

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:18]] == SUBSETS.split()
    assert "masked-own" in result.stdout
    assert "ships no language head" in result.stdout


@pytest.mark.slow
def test_one_document_has_every_measure_of_own_senses_and_tags_and_the_picture(folder, tmp_path):
    rows = [
        {"text": f"a {word} {n} sun", "word": 1, "lemma": "x", "sense": word}
        for n in range(20)
        for word in ("cat", "dog")
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "t.conll").write_text(
        "sun A\nrain B\n\n" * 3 + "".join(f"cat{'s' * n} A\ndog B\n\n" for n in range(30))
    )
    files = ("--senses", str(tmp_path / "s.jsonl"), "--tags", str(tmp_path / "t.conll"))

    result = run(folder, *files, "--json", "-o", str(tmp_path / "a.html"))

    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    by_key = {m["key"]: m for m in report["measures"]}
    assert list(by_key) == [
        *("masked-own", "masked-trained", "senses-knn", "senses-mlp"),
        "tagging",
    ]
    assert all(len(m["subsets"]) == len(m["agreement"]) == 16 for m in by_key.values())
    assert by_key["senses-knn"]["settings"]["lemmas"] == 1
    assert by_key["tagging"]["settings"]["tags"] == ["A", "B"]
    assert report["broken_rows"] == []
    assert "<table" in (tmp_path / "a.html").read_text("utf-8")


def test_a_wrong_question_is_one_line(folder, tmp_path):
    (tmp_path / "t.conll").write_text("alone\n")

    unknown = run(folder, "--tasks", "masked,nothing")
    broken = run(folder, "--tags", str(tmp_path / "t.conll"))

    assert (unknown.exit_code, broken.exit_code) == (2, 3)
    assert "no task nothing; there are masked, senses, tagging" in unknown.stderr
    assert "t.conll" in broken.stderr
