"""What layers, vocabularies and stored types say of the direction of an edge."""

import factories
import pytest
import torch
from safetensors.torch import load

import deltadex as dx
from deltadex.search import family_views
from deltadex.store import compared_as

WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def lineage(tmp_path_factory):
    """Of models whose names order them against their descent; parents by child."""
    folder = tmp_path_factory.mktemp("forms")
    base = factories.make_bert(folder / "base", seed=0, layers=6, width=64)
    full, other = factories.finetune(base, seed=1), factories.finetune(base, seed=2)
    short = factories.in_order(full, [0, 1, 3, 5])
    deep = factories.in_order(other, [0, 1, 1, 2, 3, 4, 4, 5])
    grown = {**other, WORDS: torch.cat([other[WORDS], torch.ones(6, 64)])}
    models = {
        "a-short": short,
        "b-full": full,
        "c-short-child": factories.finetune(short, seed=4, scale=0.02),
        "d-deep": deep,
        "e-deep-child": factories.finetune(deep, seed=5, scale=0.02),
        "f-grown": grown,
        "g-other": other,
        "h-bfloat16": factories.in_type(
            factories.finetune(base, seed=6, scale=0.3), torch.bfloat16
        ),
        **{f"x{n}": factories.finetune(base, seed=20 + n) for n in range(3)},
    }
    models["a-upcast"] = factories.in_type(models["h-bfloat16"], torch.float32)
    for name, tensors in models.items():
        layers = len({n.split(".")[2] for n in tensors if n.startswith("encoder.layer")})
        made = factories.make_checkpoint(folder / "models" / name, tensors, config=folder / "base")
        factories.configure(made, num_hidden_layers=layers, vocab_size=len(tensors[WORDS]))
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", folder / "models")
        rows = {m["model"]: m for m in db.models().to_json()["models"]}
        edges = {edge["child"]: edge for edge in db.lineage()}
        return rows, edges, str(folder / "base")


def test_layers_vocabulary_and_stored_type_are_columns_of_a_model(lineage):
    rows = lineage[0]
    forms = {name: (row["layers"], row["vocabulary"], row["dtype"]) for name, row in rows.items()}

    assert forms["a-short"] == (4, 64, "F32")
    assert forms["d-deep"] == (8, 64, "F32")
    assert forms["f-grown"] == (6, 70, "F32")
    assert forms["h-bfloat16"] == (6, 64, "BF16")


def test_a_model_with_all_layers_is_no_child_of_one_without_some(lineage):
    _, edges, base = lineage

    assert edges["b-full"]["parent"] == base
    assert edges["a-short"]["parent"] == "b-full"
    assert edges["c-short-child"]["parent"] == "a-short"


def test_what_was_added_does_not_come_off(lineage):
    _, edges, base = lineage

    assert edges["g-other"]["parent"] == base
    assert edges["f-grown"]["parent"] == edges["d-deep"]["parent"] == "g-other"
    assert edges["e-deep-child"]["parent"] == "d-deep"
    # equal updates in other forms are no duplicates
    assert edges["f-grown"]["kind"] == edges["d-deep"]["kind"] == "fine-tune"


def test_of_equal_updates_in_two_types_the_shorter_one_is_the_original(lineage):
    assert lineage[1]["a-upcast"]["parent"] == "h-bfloat16"
    assert lineage[1]["h-bfloat16"]["parent"] == lineage[2]


def test_an_adapter_and_its_merged_checkpoint_are_duplicates(tmp_path):
    base = factories.make_bert(tmp_path / "base", seed=0, width=64)
    merged, slim = dict(base), dict(base)
    (tmp_path / "models" / "adapter").mkdir(parents=True)
    for name, content in factories.lora_files(base).items():
        own = content.replace(b"org/base", str(tmp_path / "base").encode())
        own = own.replace(b'"lora_alpha": 48', b'"lora_alpha": 1')
        (tmp_path / "models" / "adapter" / name).write_bytes(own)
    factors = load(content)
    for name in filter(lambda name: "lora_A" in name, factors):
        matrix = name.removeprefix("base_model.model.").replace("lora_A.", "")
        other = factors[name.replace("lora_A", "lora_B")]
        merged[matrix] = base[matrix] + other @ factors[name] / 48
        slim[matrix] = base[matrix] + other[:, :4] @ factors[name][:4]
    factories.save_models(
        tmp_path, {"merged": merged, "other": factories.finetune(base, seed=1), "slim": slim}
    )
    with dx.open(None) as db:
        db.index(tmp_path / "base", tmp_path / "models")
        kinds = {edge["child"]: (edge["parent"], edge["kind"]) for edge in db.lineage()}
        twins = [finding["detail"] for finding in db.audit(kind="near-duplicate")]
        (note,) = db.trace(str(tmp_path / "models" / "adapter")).to_json()["notes"]
        (view,) = family_views(db._catalog, None, None)
        slots = [db._catalog.slots(key, view.recipe.id) for key in view.keys.tolist()]

    assert [": ".join(said.split(": ")[-2:]) for said in twins] == [
        "not both can be opened: an adapter, not a full checkpoint"
    ]
    assert f"its config or card names '{tmp_path / 'base'}'" in note
    assert kinds["merged"] == ("adapter", "duplicate")
    compared = dict(zip(view.ids, view.kinds, strict=True))
    # of rank 48 it is as full as its slots tell
    assert (compared["slim"], compared["merged"], compared["other"]) == ("adapter", "full", "full")
    stored = ["adapter" if id == "adapter" else "full" for id in view.ids]
    assert [compared_as(*one) for one in zip(stored, slots, strict=True)] == list(view.kinds)


def test_copies_of_a_parent_take_no_share_of_its_edges(tmp_path):
    base = factories.make_bert(tmp_path / "base", seed=0, width=64)
    parent, other = factories.finetune(base, seed=1), factories.finetune(base, seed=2)
    child = factories.finetune(parent, seed=3)
    models = {
        "parent": parent,
        "other": other,
        "child": child,
        **{f"x{n}": factories.finetune(base, seed=20 + n) for n in range(3)},
    }
    models["decayed"] = {n: 0.8 * tensor for n, tensor in models["x0"].items()}
    copies = {
        "c-decayed": factories.in_type(models["decayed"], torch.bfloat16),
        "a-double": factories.in_type(parent, torch.float64),
        "b-bfloat16": factories.in_type(parent, torch.bfloat16),
        "d-third": {n: base[n] + (t - base[n]) / 3 for n, t in parent.items()},
        "e-sixth": {n: base[n] + (t - base[n]) / 6 for n, t in parent.items()},
        **{
            f"merge-{k}": {n: k / 4 * t + (1 - k / 4) * other[n] for n, t in parent.items()}
            for k in (1, 2, 3)
        },
    }
    factories.save_models(tmp_path, models)
    with dx.open(None) as db:
        db.index(tmp_path / "base", tmp_path / "models")
        alone = {edge["child"]: edge for edge in db.lineage()}["child"]
        factories.save_models(tmp_path, copies)
        db.index(tmp_path / "base", tmp_path / "models")
        edges = list(db.lineage())
    first = {edge["child"]: edge for edge in reversed(edges)}
    weights = {(e["child"], e["parent"]): e["weight"] for e in edges if e["kind"] == "merge"}

    assert first["child"]["parent"] == alone["parent"] == "parent"
    assert first["child"]["probability"] == pytest.approx(alone["probability"], abs=0.15)
    assert (first["a-double"]["parent"], first["a-double"]["kind"]) == ("parent", "duplicate")
    assert first["b-bfloat16"]["kind"] == "quantised"
    assert (first["c-decayed"]["parent"], first["c-decayed"]["kind"]) == ("decayed", "quantised")
    merged = {(f"merge-{k}", "parent"): k / 4 for k in (1, 2, 3)}
    merged |= {(f"merge-{k}", "other"): 1 - k / 4 for k in (1, 2, 3)}
    scaled = {("d-third", "parent"): 1 / 3, ("e-sixth", "parent"): 1 / 6}
    assert weights == pytest.approx(merged | scaled, abs=1e-3)
