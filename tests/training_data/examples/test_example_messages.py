"""Conversations: the last answer is the completion, through a chat template or without."""

import json

import pytest
from data_set_files import write_csv, write_jsonl, write_parquet

from deltadex.data import ColumnChoice, Example, read_examples
from deltadex.errors import DataError


def chat(i):
    return [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": f"Hello {i}"},
        {"role": "assistant", "content": f"Hi {i}"},
        {"role": "user", "content": "Bye"},
    ]


def template(messages):
    *before, last = messages
    return "".join(f"<{m['role']}>{m['content']}" for m in before), last["content"] + "<end>"


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_csv])
def test_the_last_answer_is_the_completion(tmp_path, write):
    rows = [{"messages": chat(i)} for i in range(10)]
    if write is write_csv:
        rows = [{"messages": json.dumps(row["messages"])} for row in rows]
    path = write(tmp_path / f"a.{write.__name__[6:]}", rows)
    plain, through = read_examples(path), read_examples(path, template=template)

    assert (plain.kind, through.kind) == ("messages", "messages")
    asked = "system: Be kind.\nuser: Hello 3\nassistant:"
    assert Example(text=asked, completion=" Hi 3") in plain.examples
    assert "without a chat template" in plain.describe()
    assert Example(text="<system>Be kind.<user>Hello 3", completion="Hi 3<end>") in through.examples
    assert "without a chat template" not in through.describe()


def test_other_names_of_roles_and_parts_are_read(tmp_path):
    rows = [
        {
            "conversations": [
                {"from": "human", "value": f"Hello {i}"},
                {"from": "gpt", "value": f"Hi {i}"},
            ],
            "source": "web",
        }
        for i in range(8)
    ]
    read = read_examples(write_jsonl(tmp_path / "a.jsonl", rows))
    assert Example(text="user: Hello 1\nassistant:", completion=" Hi 1") in read.examples

    parts = [{"type": "text", "text": "Look"}, {"type": "image"}]
    rows = [
        {"x": [{"role": "user", "content": parts}, {"role": "assistant", "content": f"At {i}"}]}
        for i in range(8)
    ]
    read = read_examples(write_jsonl(tmp_path / "b.jsonl", rows), ColumnChoice(text="x"))
    assert Example(text="user: Look\nassistant:", completion=" At 1") in read.examples


def test_conversations_without_an_answer_are_skipped(tmp_path):
    rows = [{"messages": chat(i)} for i in range(20)] + [{"messages": chat(99)[:2]}]

    read = read_examples(write_jsonl(tmp_path / "a.jsonl", rows))

    assert [(skip.reason, skip.first) for skip in read.skipped] == [
        ("no answer of the assistant", "line 21")
    ]


def test_a_template_that_refuses_all_conversations_says_why(tmp_path):
    def refuse(messages):
        raise ValueError("roles must alternate")

    path = write_jsonl(tmp_path / "a.jsonl", [{"messages": chat(i)} for i in range(20)])

    with pytest.raises(DataError, match=r"chat template.*roles must alternate"):
        read_examples(path, template=refuse)
