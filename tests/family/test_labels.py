import pytest

from deltadex.errors import SourceError
from deltadex.indexer.family import Member, read_labels
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

    assert (by_path.dataset, by_path.author, by_path.run) == ("imdb", "ann", "r1")
    assert by_path.label_source == "labels"
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


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_separated_as_the_first_line_shows(tmp_path, separator):
    lines = [["Model", " dataset", "author"], ["m", "imdb", "ann"]]
    (tmp_path / "labels.csv").write_text("\n".join(separator.join(line) for line in lines))

    record = _apply(tmp_path / "labels.csv", "m")

    assert (record.dataset, record.author) == ("imdb", "ann")


def test_a_separator_inside_quotes_belongs_to_its_cell(tmp_path):
    (tmp_path / "labels.csv").write_text('model;dataset\nm;"a;b, c"\n')

    assert _apply(tmp_path / "labels.csv", "m").dataset == "a;b, c"


def _members(*ids):
    return [Member(record=ModelRecord(id=id, base="b")) for id in ids]


def test_rows_without_a_model_are_counted_and_compared_with_what_is_there(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("model,dataset\nbert-imdb,imdb\nbert-agnew,agnews\nzzz,x\nbert-imdb,imdb\n")

    matches = read_labels(path).match(_members("bert-imdb", "bert-agnews", "bert-trec"))

    assert matches.to_json() == {"rows": 3, "matched": 1, "unmatched": ["bert-agnew", "zzz"]}
    assert str(matches) == (
        "labels.csv: 3 rows, 1 matched; 2 name no model here, "
        "nearest: 'bert-agnew' → 'bert-agnews', 'zzz'"
    )


def test_a_file_that_names_no_model_is_refused_with_the_models_there_are(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("model,dataset\nmodels/a,imdb\n")

    with pytest.raises(SourceError, match=r"1 rows, 0 matched; .* models here are: 'b', 'c'"):
        read_labels(path).match(_members("b", "c"))


def test_a_file_without_rows_matches_nothing_and_is_no_error(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("model,dataset\n")

    assert read_labels(path).match(_members("b")).to_json()["rows"] == 0
