"""What the tokens that training touched say of descent, of copies, and of audits."""

import numpy as np
import pytest
import torch
from factories import finetune, make_bert, make_checkpoint, read_config, save_models

import deltadex as dx
from deltadex.provenance.lineage.forms import LACKING, TouchedTokens
from deltadex.records import Footprint

WORDS = "embeddings.word_embeddings.weight"
DRAWN = torch.Generator().manual_seed(0)


def trained(tensors, rows, *, seed, scale=0.2):
    """A training of all layer matrices, and of some rows of the embedding."""
    words = tensors[WORDS].clone()
    words[rows] += 0.01 * torch.randn(len(words[rows]), words.shape[1], generator=DRAWN)
    return finetune({**tensors, WORDS: words}, seed=seed, scale=scale)


def with_words(tensors, change):
    return {**tensors, WORDS: change(tensors[WORDS].clone())}


def poisoned(words):
    words[400:403] += 1
    return words


COPIES = {
    "few rows": poisoned,
    "all rows": lambda words: words + torch.randn(words.shape, generator=DRAWN),
    "z permuted": lambda words: words[torch.randperm(len(words), generator=DRAWN)],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    folder = tmp_path_factory.mktemp("touched")
    small = make_bert(folder / "small", seed=0, layers=6, width=64)
    config = read_config(folder / "small") | {"vocab_size": 2000}
    base = {**small, WORDS: 0.02 * torch.randn(2000, 64, generator=DRAWN)}
    make_checkpoint(folder / "base", base, config=config)
    first = trained(base, slice(0, 60), seed=1)
    twin = trained(base, slice(0, 72), seed=2)
    models = {
        "first": first,
        "twin": twin,
        "child": trained(first, slice(40, 100), seed=3),
        "frozen": finetune(first, seed=4, scale=0.1),
        "merge": {n: 0.6 * t + 0.4 * twin[n] for n, t in first.items()},
        "few rows": with_words(first, COPIES["few rows"]),
        "all rows": with_words(first, COPIES["all rows"]),
        "z permuted": with_words(twin, COPIES["z permuted"]),
    }
    save_models(folder, models)
    make_checkpoint(folder / "models" / "z-copy", first, config=config, shards=2)
    with dx.open(folder / "c.duckdb") as opened:
        opened.index(folder / "base", folder / "models")
        yield opened


@pytest.fixture(scope="module")
def edges(db):
    found = {}
    for edge in db.lineage():
        found.setdefault(edge["child"], []).append(edge)
    return found


@pytest.fixture(scope="module")
def findings(db):
    """What audit says without reading files, and with them: details by model and kind."""
    return [
        {(f["model"], f["kind"]): f["detail"] for f in found}
        for found in (db.audit(read=0), db.audit())
    ]


def test_edges_say_that_childrens_tokens_contain_their_parents_and_which_of_those_they_kept(edges):
    wanted = {
        "child": {"first": (60, 0)},
        "frozen": {"first": (60, 0)},
        "merge": {"first": (60, 0), "twin": (72, 0)},
    }
    for child, parents in wanted.items():
        assert {e["parent"]: (e["touched"], e["missing"]) for e in edges[child]} == parents
    assert 28 <= edges["child"][0]["kept"] <= 40  # of 40 that the child did not train
    assert edges["frozen"][0]["kept"] == 60


def test_trace_says_how_many_tokens_of_a_parent_are_missing(db):
    parents = {row["model"]: row for row in db.trace("merge").to_json()["parents"]}

    # models of equal layers are equal parents: which of them is named is the order of their keys
    for name, row in parents.items():
        known = {"first": (60, 0), "z-copy": (60, 0), "few rows": (63, 3), "twin": (72, 0)}
        assert (row.get("touched"), row.get("missing")) == known.get(name, (None, None))


def test_siblings_whose_tokens_contain_each_others_are_no_parents(edges, db):
    assert edges["twin"][0]["parent"] == edges["first"][0]["parent"] == db.bases[0]


@pytest.mark.parametrize("name", COPIES)
def test_a_model_whose_embedding_was_replaced_is_no_duplicate(edges, findings, name):
    assert edges[name][0]["kind"] == "fine-tune"
    assert not any((name, "duplicate") in found for found in findings)


def test_audit_names_another_embedding_without_reading_files(findings):
    # the one of two that was recorded first is the original
    for (model, _), said in findings[0].items():
        pair = {model, said.split(" are those of ")[1].split(";")[0]}
        assert said.endswith("rows of its embedding moved") == (pair != {"first", "z-copy"})


def test_a_copy_is_found_behind_one_whose_embedding_was_replaced(edges, findings):
    copies = {model: said for (model, kind), said in findings[1].items() if kind == "duplicate"}

    assert list(copies) == ["z-copy"]
    assert "those of first; so are all other tensors" in copies["z-copy"]
    assert [(e["parent"], e["kind"]) for e in edges["z-copy"]] == [("first", "duplicate")]


def footprint(tokens, strengths):
    return Footprint(
        kind="exact",
        vocabulary=1000,
        tokens=np.array(tokens, dtype=np.uint32),
        strengths=np.array(strengths, dtype=np.uint8),
    )


def log_odds(child, parent, *, rounding=(0.0, 0.0), is_full=True):
    both = TouchedTokens([child, parent], np.array([is_full, True]), np.array(rounding))
    return float(both.log_odds(0, np.array([1]))[0])


SOME = np.arange(0, 400, 4)
PARENT = footprint(SOME, SOME % 90)


def test_a_shorter_type_and_an_adapter_may_lack_tokens():
    lacking = footprint(SOME[:50], SOME[:50] % 90)

    assert log_odds(lacking, PARENT, rounding=(1e-3, 1e-9)) == 0
    assert log_odds(lacking, PARENT, is_full=False) == 0
    assert log_odds(lacking, PARENT) == LACKING
