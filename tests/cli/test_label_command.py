"""Labels from a file and from the command line."""

import json
import shutil

import pytest
from factories import make_family
from running import document, run


@pytest.fixture
def family(tmp_path):
    make_family(tmp_path)
    return tmp_path


@pytest.fixture
def labelled(indexed, tmp_path):
    """A catalog of its own, whose models have labels from a file."""
    shutil.copy(indexed / "c.duckdb", tmp_path)
    return tmp_path


def index(folder, text, *arguments):
    (folder / "labels.csv").write_text(text)
    labels = ("--labels", folder / "labels.csv")
    return run(folder, "index", folder / "base", folder / "models", *labels, *arguments)


def test_the_report_counts_rows_on_stderr_and_in_the_document(family):
    result = index(family, "model;dataset\nmodels/a-0;x\nmodels/a-7;x\nmodels/a-0;x\n", "--json")

    assert result.exit_code == 0
    counts = json.loads(result.stdout)["labels"]
    assert counts == {"rows": 2, "matched": 1, "unmatched": ["models/a-7"]}
    counted = "labels.csv: 2 rows, 1 matched; 1 name no model here, nearest: 'models/a-7' → '"
    assert counted in result.stderr


def test_labels_that_are_guessed_from_names_are_said_with_what_overrides_them(family):
    (family / "models" / "a-0").rename(family / "models" / "bert-imdb")
    (family / "models" / "a-1").rename(family / "models" / "bert-agnews")

    result = index(family, "model,dataset\nmodels/bert-agnews,mine\n")

    said = " ".join(result.stdout.split())
    assert "1 label guessed from names of models: --labels FILE or `deltadex label` over" in said
    assert document(family, "show", "bert-imdb")["label_source"] == "name"


def test_a_file_that_names_no_model_stops_the_run_before_it_reads(family):
    result = index(family, "model,dataset\nnobody,x\n")

    assert result.exit_code == 3
    assert "1 row, 0 matched" in result.stderr
    assert "models here are: 'a-0', 'a-1'" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(family.glob("*.duckdb"))


def test_a_label_given_by_hand_says_what_was_before_and_outlives_another_run(indexed, labelled):
    printed = document(labelled, "label", "b-0", " imdb ", "--run", "r")

    run(labelled, "index", indexed / "base", indexed / "models", "--retry-failed")

    shown = document(labelled, "show", "b-0")
    assert (printed["model"], printed["dataset"], printed["run"]) == ("b-0", "imdb", "r")
    assert printed["before"]["dataset"] == "b"
    assert (shown["dataset"], shown["dataset_raw"]) == ("imdb", "imdb")
    assert shown["label_source"] == "labels"


def test_a_column_that_a_file_lacks_keeps_what_an_earlier_file_gave(family):
    for text in ("dataset,author,run\na-0,x,ann,r\na-1,x,ann,r", "author\na-0,bob"):
        index(family, f"model,{text}\n")
    index(family, "model,dataset\na-1,y\n")

    shown = [document(family, "show", id) for id in ("a-0", "a-1")]
    assert [row["dataset"] for row in shown] == ["x", "y"]
    assert [row["author"] for row in shown] == ["bob", "ann"]
    assert [row["run"] for row in shown] == ["r", "r"]


def test_clear_takes_the_dataset_away_and_nothing_else(labelled):
    result = run(labelled, "label", "a-0", "--clear")

    assert "dataset: –  (was a)" in result.stdout
    assert document(labelled, "show", "a-0")["author"] == "author0"
