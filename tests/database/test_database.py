"""Queries, results and files of the public face."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from catalogs import make_catalog, make_indexed
from running import printed

import deltadex as dx
from deltadex.errors import EmptyCatalog, RequestError, StoreError
from deltadex.records import Recipe
from deltadex.results import MAX_SHOWN, Table


def test_importing_deltadex_loads_nothing_heavy():
    code = "import deltadex, sys; print(*sys.modules)"
    heavy = {"numpy", "duckdb", "faiss", "torch", "click", "rich", "lazy_loader", "pyarrow"}
    assert not heavy & set(printed(sys.executable, "-c", code).split())


def test_a_catalog_that_is_not_there_is_made_or_refused(tmp_path):
    with pytest.raises(EmptyCatalog):
        dx.open(tmp_path / "none.duckdb", create=False)

    dx.open(str(tmp_path / "new.duckdb")).close()
    assert (tmp_path / "new.duckdb").exists()


def test_a_catalog_opened_for_reading_cannot_be_changed(family):
    with dx.open("family.duckdb", read_only=True) as db, pytest.raises(StoreError):
        db.label("imdb-0", "other")


@pytest.mark.parametrize("library", ["peft", "transformers"])
def test_a_model_in_memory_is_found_as_its_files_are(db, family, library):
    from transformers import BertModel

    model = BertModel.from_pretrained(family / "models" / "imdb-0")
    if library == "peft":
        from peft import LoraConfig, get_peft_model

        base = BertModel.from_pretrained(family / "base")
        model = get_peft_model(
            base, LoraConfig(r=2, target_modules=["query"], init_lora_weights=False)
        )
    model.save_pretrained(family / "saved")

    in_memory = db.find_similar(model, k=4)
    saved = db.find_similar(family / "saved", k=4)

    assert in_memory[0]["query"] == "model in memory"
    assert [hit["model"] for hit in in_memory] == [hit["model"] for hit in saved]
    assert [hit["score"] for hit in in_memory] == [hit["score"] for hit in saved]
    if library == "transformers":
        copy, *others = in_memory
        assert (copy["model"], copy["verdict"]) == ("imdb-0", "copy")
        stored = db.find_similar("imdb-0", k=3)
        for key in ("model", "z", "fdr", "verdict"):
            assert [hit[key] for hit in others] == [hit[key] for hit in stored]


def test_a_model_in_memory_of_another_base_is_refused_under_its_own_name(db, family):
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(family / "base")
    config.num_hidden_layers += 1

    with pytest.raises(RequestError, match=r"^model in memory: ") as refused:
        db.find_similar(BertModel(config))

    assert "deltadex-" not in str(refused.value)


def test_a_result_is_rows_a_document_and_a_table(db):
    hits = db.find_similar("imdb-0", k=3)

    assert len(hits) == hits.to_arrow().num_rows == 3
    assert hits.to_arrow().column_names == list(hits[0])
    assert json.loads(json.dumps(hits.to_json()))["query"]["model"] == "imdb-0"
    assert "<td>imdb-1</td>" in hits._repr_html_()
    assert "imdb-1" in repr(hits)


def test_names_are_text_in_a_notebook_never_markup():
    table = Table({"model": "<script>\x1b[31m"})

    assert "<script>" not in table._repr_html_()
    assert "\x1b" not in table._repr_html_() + repr(table)


def test_a_long_result_is_cut_where_it_is_shown():
    class Numbers(Table):
        _key = "rows"

    table = Numbers({"rows": [{"n": n} for n in range(MAX_SHOWN + 7)]})

    assert "and 7 more rows" in repr(table)
    assert len(table) == MAX_SHOWN + 7
    assert repr(Numbers({"rows": []})) == ""


def test_adapters_that_a_service_was_sent_have_no_files_to_study_and_no_slots_to_compare(tmp_path):
    known = {"source": "upload", "kind": "adapter"}
    known["recipes"] = (Recipe(name="sketch", rank=1, dim=2),)
    models = [make_indexed("up/one", [1, 0], **known), make_indexed("up/two", [0, 1], **known)]
    make_catalog(tmp_path / "c.duckdb", *models).close()

    with dx.open(tmp_path / "c.duckdb") as db:
        with pytest.raises(RequestError, match="keeps no files; name the adapter's folder"):
            db.studies.rank("up/one")
        with pytest.raises(RequestError, match="keeps no slots of up/one and up/two"):
            db.diff("up/one", "up/two")


PROGRAM = """
import sys
from pathlib import Path
import deltadex as dx
db = dx.open(sys.argv[1])
reader = db.reader()
temporary = dx.open()
print(len(db.models()), len(reader.models()), temporary.path.parent)
raise SystemExit(3)
"""


def test_a_program_that_never_closes_its_catalog_ends_without_a_word_and_leaves_nothing(tmp_path):
    path = tmp_path / "c.duckdb"
    dx.open(path).close()

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, timeout=60
    )

    counts, folder = ended.stdout.rsplit(maxsplit=1)
    assert (ended.returncode, ended.stderr, counts) == (3, "", "0 0")
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.duckdb"]
    assert not Path(folder).exists()
