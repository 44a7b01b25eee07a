import logging
from pathlib import Path

import pytest

from deltadex.errors import DataError
from deltadex.tables.data_files import data_set_names, data_sets_in


def test_files_and_folders_are_data_sets_but_hidden_and_other_ones(tmp_path, caplog):
    caplog.set_level(logging.INFO, "deltadex")
    for name in ("b.csv", "a.jsonl.gz", ".hidden.csv", "_cache.csv", "notes.md", "state.json"):
        (tmp_path / name).write_text("text\n")
    (tmp_path / "saved").mkdir()
    (tmp_path / ".git").mkdir()

    assert [path.name for path in data_sets_in(tmp_path)] == ["a.jsonl.gz", "b.csv", "saved"]
    assert caplog.messages == [f"{tmp_path}: left out, no data files by their names: notes.md"]


def test_an_empty_folder_and_a_file_are_refused(tmp_path):
    (tmp_path / "one.csv").write_text("text\n")
    (tmp_path / "empty").mkdir()

    with pytest.raises(DataError, match="no data file in it"):
        data_sets_in(tmp_path / "empty")
    with pytest.raises(DataError, match="no such folder"):
        data_sets_in(tmp_path / "one.csv")


def test_names_are_as_short_as_tells_them_apart():
    paths = [Path(p) for p in ("x/a.csv", "x/b.jsonl.gz", "x/c.csv", "x/c.tsv", "y/d", "z/d")]

    assert data_set_names(paths) == ("a", "b", "c.csv", "c.tsv", "y/d", "z/d")
