"""What names a place of exported vectors, and what does not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import RequestError
from deltadex.store.qdrant.index import EdgeTarget, ServerTarget, parse_target

NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=40
).filter(lambda name: "/" not in name and name not in (".", ".."))


@pytest.mark.parametrize(
    ("text", "host", "port", "collection", "https"),
    [
        ("qdrant://localhost/bert", "localhost", 6333, "bert", False),
        ("qdrant://h:80/a?https=1", "h", 80, "a", True),
        ("qdrant://[::1]:7/a%20b/?https=false", "::1", 7, "a b", False),
    ],
)
def test_a_servers_address_is_understood(text, host, port, collection, https):
    assert parse_target(text) == ServerTarget(
        host=host, port=port, collection=collection, https=https
    )


@given(NAMES, st.booleans(), st.sampled_from(["localhost", "::1", "10.0.0.1"]))
def test_an_address_that_was_printed_is_the_same_address(name, https, host):
    target = ServerTarget(host=host, port=6334, collection=name, https=https)

    assert parse_target(str(target)) == target


def test_a_folder_is_meant_from_where_the_command_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert parse_target("edge:a/b") == EdgeTarget(Path(tmp_path / "a/b"))
    assert parse_target(str(parse_target("edge:a/b"))) == EdgeTarget(Path(tmp_path / "a/b"))


@pytest.mark.parametrize(
    "text",
    [
        "edge:",
        "edges",
        "http://h/c",
        "qdrant:h/c",
        "qdrant://h",
        "qdrant://h/",
        "qdrant://h/a/b",
        "qdrant://h/..",
        "qdrant://h:99999/c",
        "qdrant://h/c?api_key=1",
        "qdrant://h/c?https=perhaps",
        "qdrant://h/c#x",
        "qdrant:///c",
        "qdrant://h/" + 256 * "c",
    ],
)
def test_what_is_no_target_is_a_wrong_call(text):
    with pytest.raises(RequestError):
        parse_target(text)


def test_a_key_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(RequestError, match="QDRANT_API_KEY") as refused:
        parse_target("qdrant://s3cret@h/c")

    assert "s3cret" not in str(refused.value)
