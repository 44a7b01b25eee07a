"""A copy and a duplicate are equal in every tensor; what else is said, says what differs."""

import re
import shutil

import pytest
import torch
from factories import in_order, in_type, make_bert, make_checkpoint, read_config, save_models
from test_audit import edit

import deltadex as dx

WORDS = "embeddings.word_embeddings.weight"
UP = "encoder.layer.3.intermediate.dense.weight"
DRAWN = torch.Generator().manual_seed(0)


def cut(tensors, kept, outputs, inputs):
    """Without what is behind the kept outputs of some modules, and the inputs of others."""
    return {
        n: t[:kept] if re.search(outputs, n) else t[:, :kept] if re.search(inputs, n) else t
        for n, t in tensors.items()
    }


def moved(tensors, name, place, by):
    tensor = tensors[name].clone()
    tensor[place] += by
    return {**tensors, name: tensor}


def poisoned(tensors):
    """One row of the embeddings is another."""
    return moved(tensors, WORDS, 7, 1.0)


def with_biases(tensors):
    return {
        n: t + torch.randn(t.shape, generator=DRAWN) if "LayerNorm.bias" in n else t
        for n, t in tensors.items()
    }


def with_head(tensors):
    named = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    return {**named, "classifier.weight": torch.ones(2, 64), "classifier.bias": torch.zeros(2)}


CHANGES = {
    "neurons": (
        lambda t: cut(t, 84, "intermediate.dense", r"layer\.\d+\.output\.dense\.weight"),
        "up of 84 × 64, the base's of 128 × 64",
    ),
    "heads": (
        lambda t: cut(t, 48, r"\.attention\.self\.", r"attention\.output\.dense\.weight"),
        "q of 48 × 64, the base's of 64 × 64",
    ),
    "embeddings": (lambda t: {**t, WORDS: torch.randn(64, 64, generator=DRAWN)}, WORDS),
    "a row": (poisoned, f"changed: '{WORDS}'"),
    "biases": (with_biases, "encoder.layer.*.output.LayerNorm.bias"),
    "a head": (with_head, "added: 'classifier.bias', 'classifier.weight'"),
    "no pooler": (
        lambda t: {n: v for n, v in t.items() if "pooler" not in n},
        "missing: 'pooler.dense.bias', 'pooler.dense.weight'",
    ),
    "an entry": (lambda t: moved(t, UP, (1, 5), 0.5), f"changed: '{UP}'"),
    "turned": (
        lambda t: {
            n: v.T.contiguous() if re.search(r"attention\..*weight", n) and v.dim() == 2 else v
            for n, v in t.items()
        },
        "attention not the base's in 6 of 6 layers",
    ),
    "dropped": (lambda t: in_order(poisoned(t), [0, 1, 3, 5]), f"changed: '{WORDS}'"),
}
"""What is done to a base's tensors, and what the first line must say of it."""


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, and a model of each change, and two true copies."""
    folder = tmp_path_factory.mktemp("copies")
    base = make_bert(folder / "base", seed=0, layers=6, width=64)
    made = {name: change(base) for name, (change, _) in CHANGES.items()}
    made |= {"copy": base, "short copy": in_type(base, torch.bfloat16)}
    save_models(folder, made)
    with dx.open(folder / "c.duckdb") as db:
        db.known_bases.add(folder / "base")
    return folder


def traced(folder, model):
    with dx.open(folder / "c.duckdb") as db:
        return db.trace(str(model)).to_json()


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_from_the_base_outside_the_sampled_entries_is_said_first(family, name):
    answer = traced(family, family / "models" / name)

    assert answer["verdict"] == "transformed"
    assert CHANGES[name][1] in answer["sentence"]


def test_without_the_bases_files_the_first_line_says_what_was_not_compared(family, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path)
    (family / "base").rename(family / "moved")
    try:
        answer = traced(tmp_path, family / "models" / "a row")
    finally:
        (family / "moved").rename(family / "base")

    assert answer["sentence"].split(": ", 1)[1].startswith("in the sampled entries of its layers")
    assert "embeddings, norms, biases and heads were not compared" in answer["sentence"]


@pytest.fixture(scope="module")
def findings(family, tmp_path_factory):
    """Of all these models, and of two that were edited along one direction."""
    folder = tmp_path_factory.mktemp("audited")
    base = make_bert(folder / "base", seed=0, layers=4, width=64)
    edited = edit(base, 1.0)
    models = {
        "a-edited": edited,
        "b-weaker": edit(base, 0.97),
        "c-norms": {n: t + 0.1 if "LayerNorm" in n else t for n, t in edited.items()},
        "e-weaker-short": in_type(edit(base, 0.97), torch.bfloat16),
        "f-weakest-short": in_type(edit(base, 0.9), torch.bfloat16),
        "g-weakest-half": in_type(edit(base, 0.9), torch.float16),
    }
    long = edit(base, 0.9)
    models["h-weakest-mixed"] = {n: t.bfloat16() if "query" in n else t for n, t in long.items()}
    save_models(folder, models)
    make_checkpoint(folder / "models" / "d-same", edited, config=folder / "base", shards=2)
    with dx.open(folder / "c.duckdb") as db:
        db.index(family / "base", family / "models")
        db.index(folder / "base", folder / "models")
        unread = {(f["model"], f["kind"]): f["detail"] for f in db.audit(read=0)}
        return {(f["model"], f["kind"]): f["detail"] for f in db.audit()}, unread


def test_audit_calls_only_true_copies_of_the_base_duplicates(findings):
    found = findings[0]
    named = {"copy", "short copy", *CHANGES}

    assert {m for m, kind in found if kind == "duplicate" and m in named} == {"copy", "short copy"}
    for name in ("embeddings", "a row", "biases", "a head", "no pooler"):
        assert CHANGES[name][1] in found[name, "frozen"]


def test_what_audit_did_not_read_is_no_duplicate(findings):
    unread = findings[1]

    assert not {model for model, kind in unread if kind == "duplicate"}
    assert "embeddings, norms, biases and heads were not compared" in unread["a row", "frozen"]


def test_edits_of_another_strength_or_with_other_norms_are_no_copies(findings):
    found = findings[0]

    assert found["d-same", "duplicate"].startswith("its layer matrices are those of a-edited;")
    assert "changed: 'embeddings.LayerNorm.bias'" in found["c-norms", "near-duplicate"]
    assert not {("b-weaker", "near-duplicate"), ("b-weaker", "duplicate")} & set(found)
    assert "that of b-weaker up to rounding" in found["e-weaker-short", "near-duplicate"]
    for name in ("g-weakest-half", "h-weakest-mixed"):
        said = r"its update is that of f-weakest-short up to rounding: [\d.]+% of it differs"
        assert re.fullmatch(said, found[name, "near-duplicate"])


def test_which_of_two_equal_models_is_the_copy_does_not_depend_on_their_order(tmp_path):
    base = make_bert(tmp_path / "base", seed=0)
    config = read_config(tmp_path / "base")
    tuned = {name: t + 0.002 * torch.randn_like(t) for name, t in base.items()}
    for number, name in enumerate(("a", "b", "c")):
        tuned["embeddings.LayerNorm.bias"] = torch.full((32,), float(number))
        make_checkpoint(tmp_path / name, tuned, config=config)

    for number, order in enumerate(("abc", "cba", "bca")):
        with dx.open(tmp_path / f"{number}.duckdb") as db:
            for name in order:
                db.add(tmp_path / name, base=tmp_path / "base")
            found = {f["model"]: f["detail"] for f in db.audit() if "duplicate" in f["kind"]}
        assert sorted(found) == ["b", "c"]
        assert all("those of a;" in detail for detail in found.values())


def test_a_tied_head_is_read_once(bases, tmp_path):
    words, rows = "model.embed_tokens.weight", torch.randn(2, 4096, 32, generator=DRAWN)
    tensors = {**bases.tensors["llama"], words: rows[0]}
    config = {**bases.configs["llama"], "architectures": ["LlamaForCausalLM"], "vocab_size": 4096}
    make_checkpoint(tmp_path / "base", tensors, config=config)
    edited = {**tensors, words: rows[1]}
    make_checkpoint(tmp_path / "edited", edited, config=config)

    with dx.open(None) as db:
        db.known_bases.add(tmp_path / "base")
        found = db.trace(str(tmp_path / "edited")).to_json()

    assert found["changes"] == [f"changed: '{words}', 'lm_head.weight'"]
    assert found["bytes_read"] < 1.2 * found["bytes_total"]
