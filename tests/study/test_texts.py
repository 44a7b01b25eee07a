"""Texts from every format, broken rows by their place, and what the digest covers."""

import json
from collections import Counter

import pytest
from factories import write_file
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import StudyError
from deltadex.study.texts import Text, Texts, read_texts

ROWS = [
    {"text": "A cat sat.", "group": "eng_Latn", "id": "7"},
    {"text": "Un chat, assis.", "group": "fra_Latn", "id": "7"},
]
ENTRIES = (Text("A cat sat.", "eng_Latn", "7"), Text("Un chat, assis.", "fra_Latn", "7"))
LINE = "".join(json.dumps(row) + "\n" for row in ROWS)


def read(path, content):
    return read_texts(write_file(path, content))


def contents(texts):
    return [one.text for one in texts.entries]


TABLE = 'content,language,index\r\nA cat sat.,eng_Latn,7\r\n"Un chat, assis.",fra_Latn,7'


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", TABLE), ("a.jsonl", LINE.replace('"text"', '"Sentence"').replace('"7"', "7"))],
)
def test_tables_and_json_lines_give_text_group_and_id(tmp_path, name, content):
    texts = read(tmp_path / name, content)

    assert texts == Texts(ENTRIES)


def test_other_files_have_one_text_a_line_and_only_line_feeds_and_carriage_returns_end_it(tmp_path):
    texts = read(
        tmp_path / "README", "A cat, sat.\r\n  Two.  \nThree\u2028still three\x0b\x85\nFour"
    )

    assert texts.broken == ()
    assert contents(texts) == ["A cat, sat.", "Two.", "Three\u2028still three", "Four"]
    assert [(one.group, one.id) for one in texts.entries] == [("", str(n)) for n in range(1, 5)]


def test_flores_files_are_grouped_by_their_names_and_share_ids_whatever_line_is_empty(tmp_path):
    write_file(tmp_path / "eng_Latn.devtest", "Cat.\n\nHen.\n")
    write_file(tmp_path / "fra_Latn.devtest", "Chat.\nChien.\nPoule.\n")
    write_file(tmp_path / "notes.pdf", "not a text")

    texts = read_texts(tmp_path)

    assert texts.broken == ("eng_Latn.devtest:2: no text",)
    assert texts.entries == (
        Text("Cat.", "eng_Latn", "1"),
        Text("Hen.", "eng_Latn", "3"),
        Text("Chat.", "fra_Latn", "1"),
        Text("Chien.", "fra_Latn", "2"),
        Text("Poule.", "fra_Latn", "3"),
    )


def test_flores_plus_rows_are_grouped_by_language_and_script(tmp_path):
    rows = [
        {"id": 0, "iso_639_3": "eng", "iso_15924": "Latn", "glottocode": "stan", "text": "Cat."},
        {"id": 0, "iso_639_3": "rus", "iso_15924": "Cyrl", "glottocode": "russ", "text": "Кот."},
        {"id": 1, "iso_639_3": "rus", "text": "Пёс."},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)

    texts = read(tmp_path / "dev.jsonl", lines)

    assert texts.entries == (
        Text("Cat.", "eng_Latn", "0"),
        Text("Кот.", "rus_Cyrl", "0"),
        Text("Пёс.", "rus", "1"),
    )


@pytest.mark.parametrize(
    ("name", "content", "broken"),
    [
        ("a.csv", b"text,id\ngood,1\nb\xe4d,2\n", ("a.csv:2: is not UTF-8",)),
        ("a.csv", b"text,id\ngood,1\na,b,c\nlonely\n", (
            "a.csv:2: has more fields than the header",
            "a.csv:3: has fewer fields than the header",
        )),
        ("a.jsonl", b'{"text": "good"}\n{"text": \n[1]\n\n{"txt": "x"}\n{"text": null}\n', (
            "a.jsonl:2: is not JSON",
            "a.jsonl:3: is not an object with a text",
            "a.jsonl:4: is not JSON",
            "a.jsonl:5: no text",
            "a.jsonl:6: no text",
        )),
        ("a.csv", b"text,id\ngood,1\nagain,1\n", ("a.csv:2: id '1' stands twice",)),
        ("a.jsonl", b'{"text": ["a"]}\n{"text": "half \\ud800"}\n{"text": "good"}\n', (
            "a.jsonl:1: its text is not a string",
            "a.jsonl:2: is not UTF-8",
        )),
    ],
)  # fmt: skip
def test_broken_rows_are_named_and_the_rest_is_read(tmp_path, name, content, broken):
    texts = read(tmp_path / name, content)

    assert texts.broken == broken
    assert contents(texts) == ["good"]


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.csv", "id;label\n1;2\n", "only id, label; its columns are separated by semicolons"),
        ("a.csv", "text,Text\n1,2\n", "two columns 'text' in its header"),
        ("a.jsonl", "nonsense\n{}\n", r"no row with a text; a\.jsonl:1: is not JSON"),
        *((name, "", name) for name in ("a.txt", "a.csv", "a.jsonl")),
    ],
)
def test_a_file_without_a_text_is_refused_with_what_it_has_instead(tmp_path, name, content, line):
    with pytest.raises(StudyError, match=line):
        read(tmp_path / name, content)


def test_a_path_that_holds_no_text_files_is_refused_by_name(tmp_path):
    write_file(tmp_path / "model.safetensors", b"")
    with pytest.raises(StudyError, match="no text files in it"):
        read_texts(tmp_path)
    with pytest.raises(StudyError, match=r"none\.txt: no such file"):
        read_texts(tmp_path / "none.txt")


@given(
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=20),
    st.integers(1, 25),
    st.integers(0, 99),
)
def test_drawn_texts_keep_their_order_and_are_distinct(words, most, seed):
    entries = (Text(word, "", str(n)) for n, word in enumerate(words))
    texts = Texts(tuple(entries), ("a:1: no text",))

    drawn = texts.drawn(most, seed)

    places = [texts.entries.index(one) for one in drawn.entries]
    assert places == sorted(places)
    assert max(Counter(one.text for one in drawn.entries).values()) == 1
    assert all(words.index(one.text) == int(one.id) for one in drawn.entries)
    assert len(drawn.entries) == min(most, len(set(words)))  # all but the equal ones
    assert drawn.broken == texts.broken


@pytest.mark.parametrize(
    "other",
    [
        ENTRIES[::-1],
        (Text("A cat sat.", "eng_Latn", "8"), ENTRIES[1]),
        (Text("A cat sat.", "", "eng_Latn7"), ENTRIES[1]),
    ],
)
def test_other_content_has_another_digest(other):
    assert Texts(other).digest != Texts(ENTRIES).digest


def test_another_delimiter_is_recognised_by_the_header_and_said(tmp_path):
    texts = read(tmp_path / "a.tsv", TABLE)

    assert texts.entries == ENTRIES
    assert texts.notes == ("a.tsv: its columns are separated by commas",)


def test_copies_of_texts_are_counted_within_a_group(tmp_path):
    table = "text,group\nsame,eng\nsame,eng\nsame,deu\nother,deu\n"

    (note,) = read(tmp_path / "a.csv", table).notes

    assert "1 of 4 texts is a copy of others" in note
