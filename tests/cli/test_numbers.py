"""What is counted is said in its number: `1 model`, `2 models`."""

import re

import pytest
from factories import make_family
from running import run

from deltadex.results import agree, count

WRONG = re.compile(
    r"\b1 (\w+ )?(?!bits|axis|class)[a-z]{2,}(?<!ss)(?<!is)s\b|\b1 [a-z ]+ (are|have|were)\b"
)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A family of one model."""
    folder = tmp_path_factory.mktemp("one")
    models = make_family(folder, pairs="a", runs=1)
    indexed = run(folder, "index", folder / "base", models, "--labels", models / "labels.csv")
    assert indexed.exit_code == 0, indexed.output
    assert not WRONG.search(indexed.output), indexed.output
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *("stats", "find-similar a-0", "eval", "cluster", "map -o map.html", "audit", "lineage"),
        *("doctor", "spectrum a-0 --draws 0", "trace a-0", "plan base models", "publish index"),
    ],
)
def test_one_model_is_no_models(one, command, monkeypatch):
    monkeypatch.chdir(one)
    output = run(one, *command.split()).output
    assert not WRONG.search(output), output


def test_words_take_the_number_of_what_they_count():
    counted = ", ".join(count(n, "layer matrix") for n in range(3))
    assert counted == "0 layer matrices, 1 layer matrix, 2 layer matrices"
    assert count(1, "model", or_more=True) == "1 or more models"
    assert count(2000, "model", form=",") == "2,000 models"
    assert [agree(n, "is") for n in (1, 2)] == ["is", "are"]
    assert agree(2, "it equals", "they equal") == "they equal"
