"""Texts that name no model and no file: one error from Python and from an assistant's tools."""

from contextlib import nullcontext

import pytest

import deltadex as dx
from deltadex.errors import DeltadexError, RequestError, StoreError
from deltadex.questions.terminal.written import save_table
from deltadex.service.assistant import Tools

NOWHERE = ("\0", "a\0b", "x" * 256, "x" * 5000, "a/" * 3000, "~\0", "\ud800")

ASKED = (
    lambda db, name: db.find_similar(name),
    lambda db, name: db.find_similar([name]).failed[0],
    lambda db, name: db.show(name),
    lambda db, name: db.explain("imdb-0", name),
    lambda db, name: db.diff(name, "imdb-0"),
    lambda db, name: db.trace(name, offline=True),
    lambda db, name: db.audit(name),
    lambda db, name: db.label(name, "x"),
    lambda db, name: db.remove(name),
    lambda db, name: db.data.find_models(name),
    lambda db, name: db.data.show(name),
    lambda db, name: db.models(base=name),
    lambda db, name: db.index("base", name),
    lambda db, name: db.index("base", "models", labels=name),
    lambda db, name: db.lineage(name),
    lambda db, name: db.backup(name),
    lambda db, name: db.export(name),
    lambda db, name: db.studies.rank(name),
    lambda db, name: db.extract_adapter("imdb-0", name),
    lambda db, name: save_table(db.models(), f"{name}.csv"),
    lambda db, name: dx.open(name),
    lambda db, name: dx.open(name, read_only=True),
)


@pytest.mark.parametrize("name", NOWHERE, ids=ascii)
def test_a_name_that_nothing_can_have_is_an_error_of_deltadex(db, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tools = Tools(lambda: nullcontext(db), are_local=True)
    for ask in ASKED:
        try:
            answer = ask(db, name)
        except DeltadexError:
            continue
        assert set(answer) == {"model", "reason"}
    for tool in ("find_similar", "trace", "show"):
        with pytest.raises(RequestError):
            tools.answer(tool, {"model": name})


def test_a_long_id_is_shown_shortened_and_a_folder_is_no_catalog(db):
    with pytest.raises(RequestError, match=r"^x{40}…: no such model or file"):
        db.find_similar("x" * 5000)
    with pytest.raises(StoreError, match="a folder"):
        dx.open("")
