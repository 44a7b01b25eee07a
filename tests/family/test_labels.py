import pytest

from deltadex.errors import SourceError
from deltadex.indexer.family import read_labels
from deltadex.records import ModelRecord


def _apply(path, id, folder=None):
    record = ModelRecord(id=id, base="b", dataset="guess", label_source="name", author="x")
    return read_labels(path).apply(record, folder)


def test_models_are_named_by_id_or_by_path_beside_the_file(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(
        "model,dataset,author,run,extra\nsub/m,imdb,ann,r1,?\nhub/id,squad,,\n", "utf-8-sig"
    )

    by_path = _apply(path, "m", (tmp_path / "sub" / "m").resolve())
    by_id = _apply(path, "hub/id")

    assert (by_path.dataset, by_path.author, by_path.run, by_path.label_source) == (
        "imdb",
        "ann",
        "r1",
        "labels",
    )
    assert (by_id.dataset, by_id.author) == ("squad", "x")
    assert _apply(path, "else").dataset == "guess"


def test_an_empty_dataset_means_unknown_and_an_absent_column_nothing(tmp_path):
    (tmp_path / "empty.csv").write_text("model,dataset\nm,\n")
    (tmp_path / "absent.csv").write_text("model,author\nm,ann\n")

    assert _apply(tmp_path / "empty.csv", "m").dataset is None
    assert _apply(tmp_path / "absent.csv", "m").dataset == "guess"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name,dataset\n", "no column 'model'"),
        (b"model,dataset\nm,a\nm,b\n", "two labels"),
        (b"model\n\xff\xfe\n", "cannot be read"),
    ],
)
def test_unusable_files_are_one_line(tmp_path, content, message):
    path = tmp_path / "labels.csv"
    path.write_bytes(content)

    with pytest.raises(SourceError, match=message):
        read_labels(path)
