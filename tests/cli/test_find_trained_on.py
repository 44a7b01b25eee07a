"""`deltadex find-trained-on`, `find-data` and `data`: documents, refusals, and what is stored."""

import shutil

import pytest
import transformers
from factories import make_bert, make_family, save_tokenizer, write_reviews
from running import document, run

MARKER = "zyxwvmarker"
CLASSES = ("brilliantclass", "horribleclass")
EVIDENCE = ["z", "z_error", "probability", "fdr", "verdict"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """`base` with a tokenizer, four `models`, `c.duckdb`, `reviews.csv`."""
    folder = tmp_path_factory.mktemp("data-queries")
    make_family(folder)
    save_tokenizer(folder / "base")
    write_reviews(folder / "reviews.csv")
    index(folder, "c.duckdb")
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """The working folder, with a catalog of its own."""
    shutil.copy(made / "c.duckdb", tmp_path)
    shutil.copy(made / "reviews.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def with_acme(made):
    """Its catalog, in which `reviews.csv` is kept as `acme`."""
    shutil.copy(made / "c.duckdb", made / "acme.duckdb")
    result = run(made / "acme.duckdb", "find-trained-on", made / "reviews.csv", "--keep", "acme")
    assert result.exit_code == 0, result.output
    return made / "acme.duckdb"


def index(folder, db):
    result = run(folder / db, "index", folder / "base", folder / "models")
    assert result.exit_code == 0, result.output


def test_the_document_has_the_keys_of_the_reference(folder):
    answer = document(folder, "find-trained-on", "reviews.csv", "-k", 2)
    shown = run(folder, "find-trained-on", "reviews.csv").stdout

    assert list(answer) == [
        "query", "recipe", "recipe_id", "verdict", "compared", "references", "calibration",
        "comparison", "neighbours", "families", "left_out", "meaning",
    ]  # fmt: skip
    assert [model["rank"] for model in answer["neighbours"]] == [1, 2]
    assert set(answer["neighbours"][0]) >= {"model", "score", "dataset", *EVIDENCE}
    assert (answer["query"]["loss"], answer["query"]["n_texts"]) == ("classification", 24)
    assert 'text = column "text" (by name)' in shown
    assert "no proof that a model saw any one example" in answer["meaning"]
    assert answer["meaning"] in " ".join(shown.split())


def test_a_kept_data_set_is_listed_shown_asked_and_removed(folder):
    from_file = document(folder, "find-trained-on", "reviews.csv", "--keep", "acme")
    (folder / "reviews.csv").unlink()

    from_name = document(folder, "find-trained-on", "acme")
    listed = document(folder, "data", "ls")["data"]
    shown = document(folder, "data", "show", "acme")
    said = run(folder, "data", "ls").stdout
    near = document(folder, "find-data", "a-0")
    removed = document(folder, "data", "rm", "acme")

    assert from_name["neighbours"] == from_file["neighbours"]
    assert [row["name"] for row in listed] == ["acme"]
    assert "acme" in said
    assert shown["sha256"] == from_file["query"]["sha256"]
    assert set(shown["sketches"]) == {"whole", "group 0", "group 1", "group 2", "shuffled 0"}
    assert list(near["data"][0]) == ["rank", "data", "examples", "loss", "cosine", *EVIDENCE]
    assert near["data"][0]["data"] == "acme"
    assert removed["removed"] == "acme"
    assert document(folder, "data", "ls") == {"data": []}


@pytest.mark.parametrize("form", ["csv", "txt"])
def test_no_text_and_no_class_is_in_the_file(folder, form):
    rows = [(f"{MARKER} good film {row} {MARKER}", CLASSES[row % 2]) for row in range(16)]
    data = folder / f"data.{form}"
    if form == "csv":
        data.write_text("\n".join(["text,label", *map(",".join, rows)]))
    else:
        data.write_text("\n".join(text for text, _ in rows))

    assert run(folder, "find-trained-on", data, "--keep", "secret").exit_code == 0
    assert run(folder, "backup", "copy.duckdb").exit_code == 0
    assert run(folder, "export", "tables").exit_code == 0

    written = [file for file in folder.rglob("*") if file.is_file() and file != data]
    assert len(written) > 3
    for file in written:
        content = file.read_bytes().lower()
        assert not [word for word in (MARKER, *CLASSES) if word.encode() in content], file


def test_without_the_base_a_kept_data_set_still_answers(made, with_acme, folder):
    base, away = made / "base", made / "away"
    base.rename(away)
    try:
        assert run(with_acme, "find-trained-on", "acme").exit_code == 0
        refused(run(folder, "find-trained-on", "reviews.csv"), 3, "no such folder")
    finally:
        away.rename(base)


def refused(result, code, message):
    assert (result.exit_code, message in result.output) == (code, True), result.output
    assert len(result.output.strip().splitlines()) == 1 or "Usage" in result.output
    assert "Traceback" not in result.output
    assert "defect" not in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nosuch.csv",), 2, "no such file, and no data set of that name is kept"),
        (("reviews.csv", "--keep", "a/b"), 2, "a data set's name has letters"),
        (("reviews.csv", "--loss", "causal"), 2, "no causal loss"),
        (("reviews.csv", "--loss", "masked"), 2, "its checkpoint lacks the head"),
        (("reviews.csv", "--loss", "regression"), 2, "needs a column of numbers"),
        (("reviews.csv", "--label", "", "--loss", "classification"), 2, "needs labels"),
        (("reviews.csv", "--text", "nope"), 3, "its columns: text, label"),
        (("one.csv",), 2, "every label is 'good'"),
    ],
)
def test_a_wrong_question_is_one_line(folder, arguments, code, message):
    texts = "".join(f"good film {n},good\n" for n in range(20))
    (folder / "one.csv").write_text(f"text,label\n{texts}")

    refused(run(folder, "find-trained-on", *arguments), code, message)


def test_a_kept_data_set_is_not_read_again_and_what_is_not_kept_is_said(with_acme, folder):
    result = run(with_acme, "find-trained-on", "acme", "--max-tokens", "9", "--keep", "other")

    refused(result, 2, "leave out --max-tokens, --keep, or name its file")
    refused(run(folder, "data", "rm", "nothing"), 2, "no data set 'nothing' is kept")
    refused(run(folder, "find-data", "a-0"), 2, "no data set is kept for")


@pytest.mark.slow
def test_a_base_without_tokenizer_or_of_another_kind_is_said(folder, monkeypatch):
    make_family(folder, pairs=("a",))
    index(folder, "d.duckdb")
    asked = (folder / "d.duckdb", "find-trained-on", "reviews.csv")

    refused(run(*asked), 3, "has no tokenizer")
    save_tokenizer(folder / "base")
    make_bert(folder / "base", seed=1, width=64)
    refused(run(*asked), 2, "index the family again")
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "base")
    refused(run(*asked), 2, "is a gpt2 model now, and the family was indexed from a bert")
    (folder / "base" / "adapter_config.json").write_text("{}")
    refused(run(*asked), 3, "is an adapter")
