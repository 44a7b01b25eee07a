"""Panels over a tiny BERT and a tiny GPT-2: what is computed, what is kept, and what is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import transformers
from click.testing import CliRunner
from factories import finetune, write_reviews
from panel_families import BERT, GPT2, make_families
from torch.nn.modules.module import register_module_forward_hook

import deltadex as dx
from deltadex.cli import main
from deltadex.indexer import base_version
from deltadex.records import WHOLE
from deltadex.store import Catalog
from deltadex.store.tables.outcomes import DataSets

SETS = ("alpha", "beta", "gamma")
BATCHES = 2
"""Of the 24 examples of a set."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two families, `sets` of three files, and a catalog of both without a panel."""
    folder = make_families(tmp_path_factory.mktemp("panels"))
    (folder / "sets").mkdir()
    for number, name in enumerate(SETS):
        write_reviews(folder / "sets" / f"{name}.csv", n=24 + 2 * number)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """The working folder: a catalog and sets of its own, the bases of all."""
    shutil.copy(made / "c.duckdb", tmp_path)
    shutil.copytree(made / "sets", tmp_path / "sets")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def db(folder):
    with dx.open(folder / "c.duckdb") as opened:
        yield opened


@contextmanager
def forward_passes():
    """How often each base runs over a batch, by its class."""
    counts = {"BertModel": 0, "GPT2LMHeadModel": 0}

    def count(module, *_):
        if type(module).__name__ in counts:
            counts[type(module).__name__] += 1

    hook = register_module_forward_hook(count)
    try:
        yield counts
    finally:
        hook.remove()


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments), "--db", "c.duckdb"])


def done(report):
    return [(row["computed"], row["kept"]) for row in report]


def test_each_base_has_its_own_loss_and_a_pass_costs_what_it_costs(db, made):
    with forward_passes() as counts:
        report = db.panels.build("sets", max_examples=24)

    # the head of classes is fitted on states of the frozen base first
    assert counts == {"BertModel": 2 * BATCHES * 3, "GPT2LMHeadModel": BATCHES * 3}
    assert done(report) == [(3, 0), (3, 0)]
    assert [row["losses"] for row in report] == [{"classification": 3}, {"causal": 3}]
    assert all(row["estimated_seconds"] > 0 for row in report)
    catalog = db._catalog
    for base in catalog.bases():
        for data in catalog.data_sets.all(base, catalog.find_recipe(None, base).id, "sets"):
            assert (data.panel, list(data.sketches)) == ("sets", [WHOLE])
            assert sum(map(len, data.whole.values())) + data.fingerprint.vector.nbytes < 65536
    # the same gradient as of a data set with groups
    base = str(made / BERT / "base")
    db.data.find_models("sets/beta.csv", base=base, max_examples=24, keep="beta")
    one, other = (catalog.data_sets.load(name, base) for name in ("sets/beta", "beta"))
    assert one.sha256 == other.sha256
    assert float(one.fingerprint.vector @ other.fingerprint.vector) > 0.999


def test_an_interrupted_build_computes_the_rest_only(db, monkeypatch):
    save, saved = DataSets.save, []

    def interrupted(self, data):
        save(self, data)
        saved.append(data.name)
        if len(saved) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DataSets, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.panels.build("sets", max_examples=24)
    with forward_passes() as counts:
        report = db.panels.build("sets", max_examples=24)

    assert done(report) == [(0, 3), (2, 1)]
    assert counts == {"BertModel": 0, "GPT2LMHeadModel": 2 * BATCHES}


KILLED = """
import os, signal, sys
import deltadex as dx
from deltadex.store.tables.outcomes import DataSets
save, n = DataSets.save, 0
def killed(self, data):
    global n
    save(self, data)
    n += 1
    if n == 2:
        os.kill(os.getpid(), signal.SIGKILL)
DataSets.save = killed
dx.open("c.duckdb").panels.build("sets")
"""


@pytest.mark.slow
def test_a_build_that_is_killed_between_two_sets_leaves_what_is_done(folder):
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=folder, env=os.environ.copy())

    assert killed.returncode == -signal.SIGKILL
    with dx.open(folder / "c.duckdb") as db:
        assert done(db.panels.build("sets")) == [(1, 2), (3, 0)]
    assert dx.doctor(folder / "c.duckdb", check=True).problems == 0


def test_nothing_is_computed_again_and_a_new_model_costs_no_gradient(db, made):
    db.panels.build("sets")
    base = str(made / GPT2 / "base")
    db.remove("g-3", base=base)
    db.add(made / GPT2 / "models" / "g-3", base=base)

    with forward_passes() as counts:
        again = db.panels.build("sets")

    assert done(again) == [(0, 3), (0, 3)]
    assert not any(counts.values())
    assert again.to_json()["estimated_seconds"] == 0


def test_what_changed_is_computed_anew(db, made, folder):
    db.panels.build("sets", bases=[str(made / BERT / "base")])
    write_reviews(folder / "sets" / "beta.csv", n=40)

    (other_bytes,) = db.panels.build("sets", bases=str(made / BERT / "base"))
    (other_settings,) = db.panels.build("sets", bases=[str(made / BERT / "base")], max_tokens=8)

    assert (other_bytes["why"], other_bytes["kept"]) == ({"with other bytes": 1}, 2)
    assert (other_settings["why"], other_settings["computed"]) == ({"with other settings": 3}, 3)


def test_replaced_weights_of_a_base_are_noticed(db, made, folder):
    base = folder / "base"
    shutil.copytree(made / GPT2 / "base", base)
    assert base_version(str(base)) == base_version(str(made / GPT2 / "base"))
    for kind in (base, folder / "nothing"):
        kind.mkdir(exist_ok=True)
    model = transformers.GPT2LMHeadModel.from_pretrained(base)
    with dx.open(folder / "own.duckdb") as own:
        own.index(base, made / GPT2 / "models")
        own.panels.build("sets")
        model.load_state_dict(finetune(model.state_dict(), seed=9, scale=1e-3))
        model.save_pretrained(base)

        assert own.panels()[0]["stale"] == 3
        (row,) = own.panels.build("sets")
        assert (row["why"], row["computed"]) == ({"of other weights": 3}, 3)
        assert own.panels()[0]["stale"] == 0
        shutil.rmtree(base)
        assert own.panels()[0]["stale"] == 0  # nothing is there to compare with


def test_what_cannot_be_done_is_a_line_and_stops_nothing(db, made, folder):
    sets = folder / "sets"
    (sets / "empty.csv").write_text("")
    rows = "\n".join(f"good film {n},good" for n in range(20))
    (sets / "one-class.csv").write_text(f"text,label\n{rows}\n")
    (sets / "(odd).csv").write_text("text\nfilm\n")
    away = made / "away"
    (made / BERT / "base" / "tokenizer.json").rename(away)
    try:
        result = run("panel", "build", "sets", "--json")
    finally:
        away.rename(made / BERT / "base" / "tokenizer.json")

    document = json.loads(result.stdout)
    reasons = {
        (failure["base"] and failure["base"].split("/")[-2], failure["data"]): failure["reason"]
        for failure in document["failed"]
    }
    assert result.exit_code == 1
    assert [(row["computed"], row["reason"] is None) for row in document["bases"]] == [
        (0, False), (4, True)
    ]  # fmt: skip
    assert reasons.keys() == {(None, "(odd)"), (BERT, None), (GPT2, "empty")}
    assert "has no tokenizer" in reasons[BERT, None]
    assert "the file is empty" in reasons[GPT2, "empty"]
    # a head of classes needs two; next tokens do not
    report = db.panels.build("sets", bases=[str(made / BERT / "base")])
    assert (report[0]["computed"], len(report.failed)) == (3, 3)
    shown = run("panel", "build", "sets", "--quiet").output
    assert "one-class  every label is 'good'" in " ".join(shown.split(" ")).replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sets/alpha.csv", "--name", "x"], 2, "a panel of one data set compares nothing"),
        (["sets/alpha.csv", "sets/beta.csv"], 2, "add --name"),
        (["sets", "--name", "kept"], 2, "is not 'kept'"),
        (["sets", "--name", "a/b"], 2, "a panel's name has letters"),
        (["sets", "--base", "nobody"], 2, "no family of 'nobody'"),
        (["none"], 3, "no such folder"),
        (["sets", "--loss", "masked"], 3, "no masked loss"),
    ],
)
def test_a_wrong_build_is_one_line(folder, arguments, code, message):
    result = run("panel", "build", *arguments, "--quiet")

    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert "Traceback" not in result.output


def test_a_recipe_of_a_budget_is_left_out(made, folder):
    with dx.open(folder / "budget.duckdb") as db:
        db.index(made / BERT / "base", made / BERT / "models", budget="30%")
        report = db.panels.build("sets")

    assert not report.is_any_there
    assert "without --budget" in report[0]["reason"]


def test_the_cost_is_said_before_and_a_dry_run_computes_nothing(folder):
    with forward_passes() as counts:
        result = run("panel", "build", "sets", "--dry-run")

    assert result.exit_code == 0, result.output
    assert result.output.count("3 to compute, 0 kept, 3 new: about") == 2
    assert "in all about" in result.output
    assert not any(counts.values())
    assert json.loads(run("panel", "ls", "--json").stdout) == {"panels": []}


def test_panels_stand_apart_from_kept_data_sets(db, made, folder):
    bases = [str(made / kind / "base") for kind in (BERT, GPT2)]
    db.panels.build("sets")
    for base, name in zip(bases, ("mine", "theirs"), strict=True):
        own = db._catalog.data_sets.load("sets/alpha", base)
        db._catalog.data_sets.save(replace(own, name=name))

    assert [row["name"] for row in db.data()] == ["mine", "theirs"]
    assert len(db.data.nearest("a-0", base=bases[0])) == 1
    assert [row["panels"] for row in db.stats()] == [{"kept": 1, "sets": 3}] * 2
    kept, panel = db.panels()
    assert (kept["panel"], kept["sets"], kept["shared"]) == ("kept", 1, 1)
    assert (panel["panel"], panel["sets"], panel["shared"]) == ("sets", 3, 3)
    assert [row["data"] for row in db.panels.show("kept")] == ["mine = theirs"]
    shown = db.panels.show("sets")
    assert [row["data"] for row in shown] == [*SETS]
    assert [base["loss"] for base in shown[0]["bases"]] == ["classification", "causal"]

    with Catalog.open(folder / "other.duckdb"):
        pass
    with dx.open(folder / "other.duckdb") as other:
        assert other.merge(folder / "c.duckdb").to_json()["data_sets"] == 8
        assert done(other.panels.build("sets")) == [(0, 3), (0, 3)]
    db.backup(folder / "copy.duckdb")
    with dx.open(folder / "copy.duckdb") as copy:
        assert copy.panels().to_json() == db.panels().to_json()
        assert copy.panels.drop("sets", base=bases[0]).to_json()["sets"] == 3
        assert [len(one["bases"]) for one in copy.panels()] == [2, 1]
        with pytest.raises(dx.errors.RequestError, match="no panel 'set'; near: sets"):
            copy.panels.drop("set")
        with pytest.raises(dx.errors.RequestError, match="data rm"):
            copy.panels.drop("kept")
        assert len(copy.data()) == 2
    (finding,) = (
        row for row in dx.doctor(folder / "copy.duckdb", check=True) if row["check"] == "data sets"
    )
    assert finding["detail"] == "2 kept data sets, 3 data sets of panels"
    for command in (["ls"], ["show", "sets"]):
        assert "classification" in run("panel", *command).stdout
    assert "sets 3" in run("stats").stdout
