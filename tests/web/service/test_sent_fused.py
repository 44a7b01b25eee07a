"""Adapters with a fused q/k/v matrix, whose rows the config of a base alone tells, where no base is
read."""

import shutil

import pytest
import torch
from factories import files_of, fused_adapter, make_neox, write_files
from services import API, files, served

import deltadex as dx
from deltadex.errors import RequestError


@pytest.fixture
def neox(tmp_path, monkeypatch):
    """The folder of a base, models/first of two adapters, and c.duckdb, in which they are."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    torch.manual_seed(0)
    base = make_neox(tmp_path / "net")
    for name in ("first", "second"):
        write_files(tmp_path / "models" / name, fused_adapter(str(base)))
    with dx.open(tmp_path / "c.duckdb") as db:
        db.index(base, tmp_path / "models")
        db.publish(tmp_path / "index", base_name="ours/net")
    return tmp_path


@pytest.mark.parametrize("may_open", [False, True])
def test_an_adapter_that_is_sent_is_split_as_its_family_or_refused(neox, may_open):
    sent = files(*files_of(neox / "models" / "first").values())

    with served(neox / "c.duckdb", allow_hub=may_open) as client:
        answer = client.post(f"{API}/similar/adapter", files=sent)

    if not may_open:
        assert (answer.status_code, answer.json()["code"]) == (422, "needs-base")
        return
    assert answer.status_code == 200, answer.text
    assert answer.json()["neighbours"][0]["cosine"] == pytest.approx(1.0, abs=1e-3)


def test_a_query_of_an_attached_index_is_split_as_its_family_or_refused(neox):
    query = write_files(neox / "query", fused_adapter("ours/net"))
    weights = "adapter_model.safetensors"
    (query / weights).write_bytes((neox / "models" / "first" / weights).read_bytes())
    with dx.open(None) as mine:
        mine.attach(neox / "index")
        with pytest.raises(RequestError, match=r"needs-base: .*--base FOLDER reads it"):
            mine.find_similar(query)

        near = mine.find_similar(query, base=str(neox / "net"), k=1)

    assert [hit["model"] for hit in near] == ["first"]
    assert near[0]["cosine"] == pytest.approx(1.0, abs=1e-3)


def test_a_family_of_a_base_by_name_alone_keeps_fused_matrices_whole(neox):
    folder = neox / "named"
    for name in ("first", "second"):
        write_files(folder / name, fused_adapter("ours/net"))

    query = shutil.copytree(folder / "first", neox / "query")

    with dx.open(neox / "named.duckdb") as db:
        db.index("ours/net", folder)
        near = db.find_similar(query, base="ours/net", k=1)

    assert near[0]["cosine"] == pytest.approx(1.0, abs=1e-3)
