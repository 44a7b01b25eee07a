"""The question as users ask it, of files that were indexed."""

import json
import shutil

import pytest
from factories import finetune, make_bert
from running import run
from safetensors.torch import save_file

from deltadex.questions.lineage.lineage import show_lineage


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """`base` ← `first` ← `second` ← `third`, a copy, a rounded copy; cards that say otherwise."""
    folder = tmp_path_factory.mktemp("chain")
    models = folder / "models"
    base = folder / "base"
    weights = {"base": make_bert(base, seed=0, layers=4)}
    above = {"first": "base", "second": "first", "third": "second", "lone": "base"}
    cards = {"first": "base", "second": "base", "third": "second", "lone": "lone"}
    for seed, (name, parent) in enumerate(above.items(), start=1):
        weights[name] = finetune(weights[parent], seed=seed, scale=0.05 / seed**0.5)
    weights["third-copy"] = weights["third"]
    weights["half"] = {n: (t + weights["base"][n]) / 2 for n, t in weights["lone"].items()}
    weights["rounded"] = {name: value.bfloat16() for name, value in weights["second"].items()}
    for name in sorted(weights.keys() - {"base"}):
        shutil.copytree(base, models / name)
        save_file(weights[name], models / name / "model.safetensors", metadata={"format": "pt"})
        if name in cards:
            (models / name / "README.md").write_text(f"---\nbase_model: {cards[name]}\n---\n")
    result = run(folder, "index", base, models)
    assert result.exit_code == 0, result.output
    return folder


def test_the_tree_of_a_chain_and_what_cards_say(chain):
    printed = run(chain, "lineage", "--json")
    document = json.loads(printed.stdout)

    parent = {edge["child"]: edge["parent"] for edge in document["edges"]}
    kind = {edge["child"]: edge["kind"] for edge in document["edges"]}
    assert parent["first"] == parent["lone"] == document["base"]
    assert (parent["second"], parent["third"], parent["rounded"]) == ("first", "second", "second")
    wanted = ("quantised", "duplicate", "third")
    assert (kind["rounded"], kind["third-copy"], parent["third-copy"]) == wanted
    says = {claim["model"]: claim["note"] for claim in document["claims"]}
    assert says["second"] == "card says base; weights say fine-tune of first"
    assert says["third"] == ""
    assert says["lone"] == "card names the model itself"


def test_the_tree_is_printed_and_drawn(chain):
    printed = run(chain, "lineage", "-o", chain / "tree.svg")
    written = run(chain, "lineage", "-o", chain / "tree.dot")
    refused = run(chain, "lineage", "-o", chain / "tree.pdf")

    assert "third-copy  copy" in printed.output
    assert "half  merge, weight 0.50, the rest of the base's weights, p 0.90" in printed.output
    assert "<svg" in (chain / "tree.svg").read_text()
    assert '"second" -> "third"' in (chain / "tree.dot").read_text()
    assert (written.exit_code, refused.exit_code) == (0, 2)
    assert "ends in one of" in refused.output


def test_models_that_stand_alone_are_one_line_unless_all_are_asked_for():
    row = {"parent": "b", "kind": "fine-tune", "weight": None, "probability": 0.9, "words": []}
    edges = [row | {"child": f"m{n}"} for n in range(8)] + [row | {"child": "c", "parent": "m7"}]
    document = {"base": "b", "models": 9, "without_parent": 8, "edges": edges, "level": 0.3}
    document |= {"times": {"future": 0}, "claims": [], "not_compared": []}

    folded, whole = (list(show_lineage(document, everything=every)) for every in (False, True))

    assert folded[1:4] == [
        "├── m7",
        "│   └── c  p 0.90",
        "└── 7 models alone: m0, m1, m2, …; --all shows them",
    ]
    assert "└── m6" in whole
