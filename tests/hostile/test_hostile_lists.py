"""Label files and lists of models that strangers wrote."""

import os
import threading
from pathlib import Path

import pytest
from bounds import HOSTILE_TEXTS, damaged, texts, within, write
from fuzzing import few
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import SourceError
from deltadex.indexer import family as bounded
from deltadex.indexer.family import Labels, listed_members, read_labels
from deltadex.records import ModelRecord

GOOD = b"model,dataset,author,run\na,imdb,x,1\nb,sst2,y,2\n"


def labels_or_refusal(path):
    with within(seconds=10):
        try:
            return read_labels(path)
        except SourceError as err:
            refusal = err
    assert len(str(refusal)) < 2000
    return Labels(Path(), {}, {})


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_any_text_in_a_labels_file_is_only_text(tmp_path, text):
    quoted = text.replace('"', '""').encode("utf-8", "replace").decode()
    path = write(tmp_path / "l.csv", f'model,dataset\n"{quoted}","{quoted}"\n')

    labels = labels_or_refusal(path)

    assert [row.dataset for row in labels.by_id.values()] == [quoted.strip()]
    labels.apply(ModelRecord(id=quoted, base="b"), tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 1000, b'model,dataset\n"a', b"model\n" + b"x" * 10**6, b"model\n\xff",
     b"\xff\xfem\0", b"model,model\na,b\n"],
)  # fmt: skip
def test_a_strange_labels_file_is_read_or_refused(tmp_path, content):
    labels_or_refusal(write(tmp_path / "l.csv", content))


@few
@given(data=damaged(GOOD) | texts().map(lambda t: GOOD + t.encode("utf-8", "replace")))
def test_a_damaged_labels_file_is_read_or_refused(tmp_path, data):
    labels_or_refusal(write(tmp_path / "l.csv", data))


def test_labels_come_through_a_pipe_too(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(GOOD,))
    writer.start()

    assert set(read_labels(path).by_id) == {"a", "b"}
    writer.join()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_without_end_is_refused(device, monkeypatch):
    monkeypatch.setattr(bounded, "MAX_BYTES", 1 << 20)

    with within(seconds=10, mebibytes=32), pytest.raises(SourceError):
        read_labels(Path(device))
    with within(seconds=10, mebibytes=32), pytest.raises(SourceError):
        list(listed_members(Path(device), "gpt2"))


@few
@given(data=st.binary(max_size=60))
def test_any_list_of_models_is_read_or_refused(tmp_path, data):
    path = write(tmp_path / "list", b"/" + data.replace(b"\n", b"\n/"))

    with within(seconds=10):
        try:
            members = list(listed_members(path, "gpt2"))
        except SourceError:
            return
    assert all(member.refusal is not None or member.folder for member in members)
