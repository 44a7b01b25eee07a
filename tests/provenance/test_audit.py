import math
import re
import shutil

import duckdb
import numpy as np
import pytest
import torch
from catalogs import AXES, make_indexed
from factories import make_bert, make_checkpoint, random_update, save_models
from safetensors.torch import load_file

import deltadex as dx
from deltadex.errors import UnknownModel
from deltadex.indexer import resolve_base
from deltadex.provenance import find_direction_edit
from deltadex.store import Catalog

LAYERS, WIDTH = 4, 64
WRITERS = ("attention.output.dense.weight", "output.dense.weight")


def is_writer(name):
    return name.startswith("encoder.layer") and name.endswith(WRITERS)


def tune(base, seed, scale=0.05):
    """Random updates of low rank and a little noise on every layer matrix."""
    generator = torch.Generator().manual_seed(seed)
    tuned = {}
    for name, tensor in base.items():
        update = torch.zeros_like(tensor)
        if name.startswith("encoder.layer") and tensor.dim() == 2:
            update += random_update(tensor, generator, scale=scale, rank=4)
            update += random_update(tensor, generator, scale=scale / 2)
        tuned[name] = tensor + update
    return tuned


def edit(base, strength, *, n=1, layers=range(LAYERS), keeps_norms=False, length=0.0, seed=0):
    """ΔW = −λ R RᵀW on what writes to the residual stream, with n orthonormal columns, and a
    fine-tune `length` times as long; or as Heretic: of rows of unit length, which get their norms
    back, at rank 3."""
    generator = torch.Generator().manual_seed(seed)
    removed = torch.linalg.qr(torch.randn(WIDTH, n, generator=generator))[0]
    edits = {}
    for name, weight in base.items():
        if is_writer(name) and int(name.split(".")[2]) in layers:
            norms = weight.norm(dim=1, keepdim=True) if keeps_norms else torch.ones(WIDTH, 1)
            rows = weight / norms - strength * removed @ (removed.T @ (weight / norms))
            if keeps_norms:
                rows = torch.nn.functional.normalize(rows, dim=1)
            u, sigma, v = torch.linalg.svd(rows * norms - weight, full_matrices=False)
            edits[name] = (u[:, :3] * sigma[:3]) @ v[:3]
    changed = dict(base)
    if length:
        tuned = tune(base, seed + 50)
        size = math.hypot(*(float(update.norm()) for update in edits.values()))
        own = math.hypot(*(float((tuned[n] - base[n]).norm()) for n in base if is_writer(n)))
        changed = {n: base[n] + (tuned[n] - base[n]) * (length * size / own) for n in base}
    return {name: changed[name] + edits.get(name, 0.0) for name in base}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, 14 ordinary fine-tunes, and a model of each kind of finding but copies."""
    folder = tmp_path_factory.mktemp("audit")
    base = make_bert(folder / "base", seed=0, layers=LAYERS, width=WIDTH)
    (folder / "base" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    models = folder / "models"

    def save(name, tensors, card=""):
        save_models(folder, {name: tensors})
        if card:
            (models / name / "README.md").write_text(f"---\n{card}\n---\n")

    for seed in range(14):
        save(f"plain-{seed:02}", tune(base, seed, 0.05 * 1.03**seed))
    save("edit-plain", edit(base, 0.9))
    save("edit-tuned", edit(base, 1.0, length=2.0, seed=1))
    save("edit-kept", edit(base, 0.7, keeps_norms=True, length=1.0, seed=2))
    save("edit-half", edit(base, 1.0, layers=range(2), length=1.0, seed=3))
    still = tune(base, 30)
    save("frozen", {n: base[n] if ".layer.0." in n or ".query." in n else still[n] for n in base})
    save("loud", tune(base, 31, 3.0), "license: cc-by-nc-sa-4.0")
    save("rounded", {n: t.bfloat16() for n, t in tune(base, 32, 1e-3).items()})
    save("licensed", tune(base, 33), "license: mit\nbase_model: someone/other-net")
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", models)
    return folder


@pytest.fixture(scope="module")
def findings(family):
    with dx.open(family / "c.duckdb", read_only=True) as db:
        return {(f["model"], f["kind"]): f for f in db.audit()}


def test_each_kind_is_found_and_ordinary_models_are_not(findings):
    expected = {
        ("edit-plain", "edit"),
        ("edit-plain", "frozen"),
        ("edit-tuned", "edit"),
        ("edit-kept", "edit"),
        ("edit-half", "edit"),
        ("frozen", "frozen"),
        ("loud", "outlier"),
        ("rounded", "rounding"),
        ("licensed", "licence"),
        ("licensed", "card-base"),
    }

    assert set(findings) - {("rounded", "outlier")} == expected  # what is below rounding is short


def test_details_are_plain_sentences(findings):
    texts = {key: finding["detail"] for key, finding in findings.items()}

    edited = r"edited along one direction in 2 of 4 layers, (9\d|10\d) % of its strength removed"
    assert re.fullmatch(edited, texts["edit-half", "edit"])
    assert (
        texts["frozen", "frozen"] == "layer 0 equals the base's; q equals the base's in the others"
    )
    assert texts["licensed", "licence"].endswith(", cc-by-nc-4.0, allows no commercial use")
    assert texts["licensed", "card-base"].startswith("its card names someone/other-net")
    assert "times as long as the median" in texts["loud", "outlier"]


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_the_strength_is_that_of_the_singular_direction_of_the_true_update(
    family, tmp_path, strength
):
    base = load_file(family / "base" / "model.safetensors")
    edited = edit(base, strength, seed=9)
    make_checkpoint(tmp_path / "edited", edited, config=family / "base")
    left = []
    for name in filter(is_writer, base):
        u = torch.linalg.svd(edited[name] - base[name]).U[:, 0]
        left.append(float((u @ edited[name]).norm() / (u @ base[name]).norm()))

    with Catalog.open(family / "c.duckdb", read_only=True) as catalog:
        found = find_direction_edit(
            resolve_base(catalog, str(family / "base")), str(tmp_path / "edited")
        )

    assert found is not None
    assert found.strength == pytest.approx(1.0 - np.median(left), abs=0.02)
    assert found.layers == (0, 1, 2, 3)


def rank_one(base, generator):
    return {n: random_update(base[n], generator, scale=0.2, rank=1) for n in base if is_writer(n)}


def truncated(base, generator):
    updates = {}
    for name in filter(is_writer, base):
        u, sigma, v = torch.linalg.svd(base[name], full_matrices=False)
        updates[name] = -(u[:, 24:] * sigma[24:]) @ v[24:]
    return updates


def scaled(base, generator):
    return {name: -0.3 * base[name] for name in base if is_writer(name)}


@pytest.mark.parametrize("make", [rank_one, truncated, scaled])
def test_other_changes_are_no_edit(family, tmp_path, make):
    base = load_file(family / "base" / "model.safetensors")
    updates = make(base, torch.Generator().manual_seed(5))
    other = {n: base[n] + updates.get(n, 0.0) for n in base}
    make_checkpoint(tmp_path / "other", other, config=family / "base")

    with Catalog.open(family / "c.duckdb", read_only=True) as catalog:
        opened = resolve_base(catalog, str(family / "base"))
        assert find_direction_edit(opened, str(tmp_path / "other")) is None


def test_without_reading_a_clean_edit_is_perhaps_one(family):
    with dx.open(family / "c.duckdb", read_only=True) as db:
        table = db.audit(kind="edit", read=0)
        edits = {finding["model"]: finding for finding in table}

    assert list(edits) == ["edit-plain"]
    assert edits["edit-plain"]["detail"].startswith("perhaps edited along one direction")
    assert edits["edit-plain"]["z"] is None
    assert any("could be edited" in note for note in table.to_json()["notes"])


def test_a_model_a_filter_and_a_base_choose_the_models(family):
    with dx.open(family / "c.duckdb", read_only=True) as db:
        of_frozen = db.audit("frozen", read=0).to_json()
        filtered = db.audit("base", where="license = 'mit'", read=0).to_json()

        assert [f["kind"] for f in of_frozen["findings"]] == ["frozen"]
        assert of_frozen["models"] == 1
        assert {f["model"] for f in filtered["findings"]} == {"licensed"}
        assert len(db.audit(str(family / "base"), kind="frozen")) == 2
        with pytest.raises(UnknownModel, match="no model 'frozn'"):
            db.audit("frozn")


def test_licences_of_ancestors_count_also_through_claims_and_cycles(family, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path)

    with duckdb.connect(str(tmp_path / "c.duckdb")) as connection:
        connection.execute("UPDATE families SET license = NULL")
        for model, parent, licence in (
            ("plain-00", "plain-01", "apache-2.0"),
            ("plain-01", "plain-02", None),
            ("plain-02", "plain-00", "llama3"),
            ("plain-05", "plain-06", "odd"),
            ("plain-06", None, "gpl-3.0"),
        ):
            connection.execute(
                "UPDATE models SET base_raw = ?, license = ? WHERE id = ?", [parent, licence, model]
            )
        rows = connection.execute(
            "SELECT model, ancestor, verdict FROM licence_conflicts "
            "WHERE ancestor LIKE 'plain%' AND term IS NOT NULL AND model LIKE 'plain%' ORDER BY ALL"
        ).fetchall()

    assert rows == [
        ("plain-00", "plain-02", "conflict"),
        ("plain-01", "plain-00", "kept"),
        ("plain-01", "plain-02", "unstated"),
        ("plain-02", "plain-00", "kept"),
        ("plain-05", "plain-06", "unknown"),
    ]


def test_a_base_under_two_names_is_said(family, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path)
    copied = shutil.copytree(family / "base", tmp_path / "twin")
    chosen = shutil.copytree(family / "models" / "plain-01", tmp_path / "more" / "one")

    with dx.open(tmp_path / "c.duckdb") as db:
        db.index(copied, chosen.parent)
        found = db.audit(kind="base-copy").to_json()["findings"]

    assert [f["model"] for f in found] == [str(copied)]
    assert str(family / "base") in found[0]["detail"]


def test_a_label_that_all_near_models_contradict_is_said_by_audit_eval_and_find_similar(tmp_path):
    rng = np.random.default_rng(0)
    models = []
    for number in range(64):
        dataset = f"data-{number // 8}"
        vector = AXES[number // 8] + 0.04 * rng.normal(size=len(AXES))
        wrong = "data-5" if number == 3 else dataset
        models.append(make_indexed(f"m{number:02}", vector, dataset=wrong, label_source="card"))
    with dx.open(tmp_path / "c.duckdb") as db:
        db._catalog.record_all(models)
        table = db.audit(kind="card-dataset", read=0)
        evaluated = db.evaluate().to_json()
        asked, near, far = (db.find_similar(id, k=10).to_json() for id in ("m03", "m04", "m20"))

    assert [finding["model"] for finding in table] == ["m03"]
    assert table[0]["detail"].startswith("its card says data-5, whose other models are far (z ")
    assert "; near are models of data-0 (z " in table[0]["detail"]
    assert table[0]["z"] > 3
    (suspect,) = evaluated["suspects"]
    assert (suspect["model"], suspect["dataset"], suspect["nearer"]) == ("m03", "data-5", "data-0")
    assert suspect["z"] - suspect["own_z"] > 2.5
    assert evaluated["labels_compared"] == 64
    assert asked["suspects"] == near["suspects"] == [suspect]
    assert far["suspects"] == []
    assert near["calibration"]["doubted"] == 1
    assert {row["verdict"] for row in asked["neighbours"][:5]} != {"no model stands out"}


def concentrated(base, name, share):
    """A fine-tune of which one matrix has so large a share."""
    tuned = tune(base, 99, 0.01)
    rest = sum(float((tuned[m] - base[m]).norm()) ** 2 for m in base if m != name)
    update = random_update(base[name], torch.Generator().manual_seed(3), scale=1, rank=1)
    update *= math.sqrt(rest * share / (1 - share)) / float(update.norm())
    return {**tuned, name: base[name] + update}


def one_step_further(tensor, share):
    """Some entries in bfloat16, each the next number."""
    numbers = tensor.bfloat16().view(torch.int16).clone()
    drawn = torch.rand(numbers.shape, generator=torch.Generator().manual_seed(4)) < share
    numbers[drawn] += 1
    return numbers.view(torch.bfloat16)


@pytest.fixture(scope="module")
def edits(tmp_path_factory):
    """By model what audit finds in eight ordinary models and edited ones; and failures."""
    folder = tmp_path_factory.mktemp("edits")
    base = make_bert(folder / "base", seed=0, layers=LAYERS, width=WIDTH)
    models = {f"plain-{seed}": tune(base, seed) for seed in range(8)}
    models["two"] = edit(base, 1.0, n=2, seed=1)
    models["two-tuned"] = edit(base, 0.8, n=2, length=1.0, seed=2)
    models["three"] = edit(base, 0.7, n=3, seed=3)
    models["one"] = edit(base, 0.7, length=1.0, seed=4)
    models["fact"] = concentrated(base, "encoder.layer.2.output.dense.weight", 0.97)
    models["spread"] = concentrated(base, "encoder.layer.2.output.dense.weight", 0.6)
    models["rounded"] = {
        n: one_step_further(t, 0.05) if t.dim() == 2 and "layer." in n else t.bfloat16()
        for n, t in base.items()
    }
    save_models(folder, models)
    with dx.open(folder / "c.duckdb") as db:
        report = db.index(folder / "base", folder / "models").to_json()
        failed = {row["model"]: row for row in report["failed"]}
        return {(f["model"], f["kind"]): f["detail"] for f in db.audit()}, failed


def test_several_removed_directions_are_counted(edits):
    found = edits[0]

    assert "along 2 directions in 4 of 4 layers, 9" in found["two", "edit"]
    assert "along 2 directions in 4 of 4 layers, 7" in found["two-tuned", "edit"]
    assert "along 3 directions in 4 of 4 layers, 6" in found["three", "edit"]
    assert "along one direction in 4 of 4 layers" in found["one", "edit"]


def test_an_update_in_one_matrix_is_an_edit_and_six_tenths_are_not(edits):
    found = edits[0]

    assert found["fact", "edit"] == "97% of its update is in 1 of 24 matrices: 'encoder.2.down'"
    edited = {model for model, kind in found if kind == "edit"}
    assert edited == {"two", "two-tuned", "three", "one", "fact"}


def test_an_update_below_rounding_is_not_said_to_equal_the_base(edits):
    found, failed = edits
    said = found["rounded", "rounding"]

    assert "smaller than the rounding of its numbers" in said
    assert 4.0 <= float(re.search(r"([\d.]+)% of the entries", said)[1]) <= 6.0
    assert ("rounded", "duplicate") not in found
    assert failed["rounded"]["reason"] == said
