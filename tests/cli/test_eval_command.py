"""`eval` as a command: what it prints."""

import numpy as np
import pytest
from catalogs import PLAIN, make_indexed, write
from running import document, run


def make_families(path, families):
    """Models by family and dataset, around directions of their own; authors in turn."""
    rng = np.random.default_rng(0)
    made = []
    for base, datasets in families.items():
        centres = {name: rng.normal(size=3) for name in datasets}
        models = [name for name, n in datasets.items() for _ in range(n)]
        for number, name in enumerate(models):
            vector = centres[name] + 0.2 * rng.normal(size=3)
            known = {"dataset": name or None, "author": "x" if name == "by-one-author" else None}
            made.append(
                make_indexed(f"{base}-{number}", vector, base=base, recipes=(PLAIN,), **known)
            )
    return write(path, *made)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Three datasets with siblings, of which one is by one author; a singleton; two unlabelled."""
    counts = {"a": 4, "b": 3, "by-one-author": 2, "single": 1, "": 2}
    return make_families(tmp_path_factory.mktemp("one") / "c.duckdb", {"bert": counts})


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    families = {"bert": dict.fromkeys("abcde", 3), "gpt": {"a": 2, "b": 2}, "none": {"a": 1}}
    return make_families(tmp_path_factory.mktemp("several") / "c.duckdb", families)


def test_the_screen_says_who_was_asked_and_who_was_not(one):
    found = document(one, "eval", "--exclude", "author")

    shown = run(one, "eval", "--exclude", "author").stdout

    assert "7 queries among 12 models, 4 datasets; left out: 1 without a sibling, " in shown
    assert "2 whose siblings --exclude author removes, 2 unlabelled" in shown
    assert "too few to tell: 2 datasets have siblings, an interval takes 5" in shown
    assert "interval 0" not in shown
    assert f"{found['p_value']:.3f}  of micro by chance; 999 permutations" in shown


def test_several_families_are_a_row_each_and_nothing_together(several):
    found = document(several, "eval")

    lines = run(several, "eval").stdout.splitlines()

    rows = {line.split()[0]: line for line in lines if line.split()[0] in found["by_base"]}
    low, high = found["by_base"]["bert"]["ci95"]
    assert f"{low:.3f} to {high:.3f}" in rows["bert"]
    assert "too few to tell" in rows["gpt"]
    assert "no queries" in rows["none"]
    assert not any("micro" in line and "0." in line for line in lines)


def test_ways_are_compared_in_the_order_given(several):
    found = document(several, "eval", "--compare", "raw, normalised", "--base", "bert")

    lines = run(several, "eval", "--compare", "raw,normalised", "--base", "bert").stdout

    assert [way["way"] for way in found["ways"]] == ["raw", "normalised"]
    assert [line.split()[0] for line in lines.splitlines()] == ["scores", "raw", "normalised"]
    assert "family" not in lines
    assert "family" in run(several, "eval", "--compare", "raw").stdout
