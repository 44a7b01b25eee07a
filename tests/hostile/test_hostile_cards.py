"""README cards, label files and lists of models that strangers wrote."""

import os
import threading
from pathlib import Path

import pytest
from bounds import HOSTILE_TEXTS, few, texts, within
from factories import write_file
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import SourceError
from deltadex.indexer import family as bounded
from deltadex.indexer.family import (
    MAX_CARD_CHARS,
    card_bases,
    label_of,
    listed_members,
    read_labels,
    read_member,
    split_card,
)
from deltadex.records import ModelRecord

FRONT = "license: mit\nbase_model: gpt2\ndatasets:\n- imdb\n"
DOUBLED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 10)
)
LAUGHS = "a0: &a0 [x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
RESULTS = (
    "r: &r {dataset: {type: glue, config: sst2}}\n"
    f"e: &e {{results: [{'*r,' * 20_000}]}}\n"
    f"model-index: [{'*e,' * 20_000}]\n"
)


def card(front):
    return f"---\n{front}---\nfine-tuned version of x on the imdb dataset\n"


def label(text):
    front, body = split_card(text)
    card_bases(front)
    return label_of(name="m", card=front, text=body)["dataset"]


@pytest.mark.parametrize(
    "text",
    [
        card(DOUBLED),
        card(LAUGHS + "datasets: *a9\nbase_model: *a9\n"),
        card(RESULTS),
        card("a: " + "[" * 390_000),
        card("- " * 190_000),
        card("{a: " * 90_000),
        card("a: " + "1:" * 190_000 + "1\n"),
        card('a: !!int "' + "1:" * 190_000 + '1"\n'),
        card("a: " + "9" * 390_000 + "\n"),
        pytest.param(card("a: [" + "1," * 190_000 + "]\n"), marks=pytest.mark.slow),
        "---" + "\n" * 390_000,
        "---\n" + "--- \n- " * 60_000,
        "fine-tuned version of" + " on the on the a(" * 23_000,
        "fine-tuned version of x on the " * 12_000,
        "\n" * 390_000,
        "\0" * 390_000,
    ],
    ids=lambda text: repr(text[:24]),
)
def test_a_card_cannot_take_long_or_much(text):
    with within(seconds=30, mebibytes=300):
        label(text)


@pytest.mark.parametrize(
    "value",
    ["!!timestamp x", '!!int ""', "!!bool x", '!!float ""', "!!omap 3", "!!set {[]: 1}",
     "!!python/object/apply:os.system ['touch owned']", "2001-99-99", "&a [*a]", "*none",
     "!!binary é", "\x1b"],
)  # fmt: skip
def test_a_value_that_is_not_of_its_tag_spoils_no_more_than_its_card(tmp_path, value, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path / "m" / "README.md", card(f"{FRONT}a: {value}\n"))

    member = read_member(tmp_path / "m", id="m", base="gpt2")

    assert member.record.dataset == "imdb"
    assert not (tmp_path / "owned").exists()


def test_a_card_of_gigabytes_is_read_in_part(tmp_path):
    path = write_file(tmp_path / "README.md", card(FRONT))
    with path.open("r+b") as file:
        file.truncate(20 << 30)

    with within(seconds=10, mebibytes=64):
        assert read_member(tmp_path, id="m", base="gpt2").record.license == "mit"


@few
@given(text=texts() | st.text(alphabet="-\n:&*![]{}<>'\"|# \tabc019", max_size=200).map(card))
def test_any_card_gives_a_label_or_none(text):
    with within(seconds=10):
        label(text)


def test_what_follows_the_front_matter_is_the_text():
    assert split_card("\ufeff\n--- \r\nlicense: mit\r\n---  \r\nbody\n---\n") == (
        {"license": "mit"},
        "body\n---\n",
    )
    assert split_card("---\n---\nbody") == ({}, "body")
    assert split_card("--- x\nlicense: mit\n---\n")[0] == {}
    assert len(split_card("x" * 10**6)[1]) == MAX_CARD_CHARS


# label files and lists of models

GOOD = b"model,dataset,author,run\na,imdb,x,1\nb,sst2,y,2\n"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_any_text_in_a_labels_file_is_only_text(tmp_path, text):
    quoted = text.replace('"', '""').encode("utf-8", "replace").decode()
    path = write_file(tmp_path / "l.csv", f'model,dataset\n"{quoted}","{quoted}"\n')

    with within(seconds=10):
        labels = read_labels(path)

    assert [row.dataset for row in labels.by_id.values()] == [quoted.strip()]
    labels.apply(ModelRecord(id=quoted, base="b"), tmp_path)


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

    for read in (read_labels, lambda path: list(listed_members(path, "gpt2"))):
        with within(seconds=10, mebibytes=32), pytest.raises(SourceError):
            read(Path(device))


@few
@given(data=st.binary(max_size=60))
def test_any_list_of_models_is_read_or_refused(tmp_path, data):
    path = write_file(tmp_path / "list", b"/" + data.replace(b"\n", b"\n/"))

    with within(seconds=10):
        try:
            members = list(listed_members(path, "gpt2"))
        except SourceError:
            return
    assert all(member.refusal is not None or member.folder for member in members)
