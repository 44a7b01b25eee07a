"""`trace` and `bases`: the base of an indexed model, in words and as a document."""

import shutil
import sys

from factories import make_bert, make_checkpoint
from running import document, printed, run

import deltadex as dx


def test_an_indexed_model_is_traced_to_its_family_and_the_signature_is_kept(family):
    answer = document(family, "trace", "a-0")

    assert (answer["base"], answer["verdict"]) == (str(family / "base"), "fine-tune")
    assert answer["layers"] == [[0, 0], [1, 1]]
    (base,) = document(family, "bases", "ls")["bases"]
    assert (base["state"], base["registered"], base["models"]) == ("known", False, 4)
    assert (base["type"], base["layers"], base["width"], base["vocabulary"]) == ("bert", 2, 32, 64)
    assert base["bytes"] <= 2_000_000


def test_the_verdict_is_one_sentence_and_the_layers_follow_where_they_moved(family, tmp_path):
    base = make_bert(tmp_path / "again", seed=0)
    one = {n: t for n, t in base.items() if "layer.0." not in n}
    moved = {n.replace("layer.1.", "layer.0."): t for n, t in one.items()}
    make_checkpoint(tmp_path / "shallow", moved, config=family / "base")

    said = run(family, "trace", tmp_path / "shallow").stdout.splitlines()

    assert said[0] == (
        f"{tmp_path / 'shallow'}: a changed copy of {family / 'base'} (layer 0 dropped)"
    )
    assert said[1] == "  layers (of the model ← of the base): 0←1"
    assert said[2] == "  layer 0 dropped"
    assert said[3].startswith("  p ")


def test_bases_are_added_and_those_that_cannot_be_read_are_listed(family, tmp_path):
    db = shutil.copy(family / "c.duckdb", tmp_path / "c.duckdb")
    make_bert(tmp_path / "other", seed=7)

    some = run(tmp_path, "bases", "add", tmp_path / "other", tmp_path / "nothing")
    none = run(tmp_path, "bases", "add", tmp_path / "nothing")
    listed = document(tmp_path, "bases", "ls")["bases"]

    assert (some.exit_code, none.exit_code) == (1, 3)
    assert f"{tmp_path / 'nothing'}: " in none.stderr
    assert [row["base"] for row in listed] == sorted(
        [str(family / "base"), str(tmp_path / "other")]
    )
    assert document(tmp_path, "doctor", "--check")["problems"] == 0
    assert db.exists()


def test_an_indexed_model_without_files_is_answered_by_the_catalog(family, tmp_path):
    shutil.copy(family / "c.duckdb", tmp_path / "c.duckdb")
    models = family / "models"
    models.rename(family / "away")
    try:
        answer = document(tmp_path, "trace", "a-0")
    finally:
        (family / "away").rename(models)

    wanted = (str(family / "base"), "fine-tune", None)
    assert (answer["base"], answer["verdict"], answer["p"]) == wanted
    assert answer["notes"][0].startswith("its files are not there")


def test_a_trace_is_tracked_and_a_list_of_known_bases_imports_no_torch(family):
    seen = []
    with dx.open(family / "c.duckdb") as db:
        db._track = lambda things, what, total=None: seen.append(what) or iter(things)
        db.trace("a-0")
    assert seen == ["reading bases", "comparing weights"]

    code = "import sys; from deltadex.cli import main\nmain(standalone_mode=False)\n"
    code += "print('torch' in sys.modules)"
    said = printed(sys.executable, "-c", code, "bases", "ls", "--db", family / "c.duckdb")

    assert said.splitlines()[-1] == "False"
