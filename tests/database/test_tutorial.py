"""The code of docs/python.md runs from top to bottom, in a folder with a family."""

import re
from pathlib import Path

import pytest

import deltadex

PAGE = Path(deltadex.__file__).parent / "docs" / "python.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run from a checkout")


@pytest.mark.usefixtures("tokenizer")
def test_the_tutorial_runs(family, capsys):
    (family / "family.duckdb").unlink()
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}

    try:
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
    finally:
        names["db"].close()

    assert len(text.splitlines()) <= 107
    assert "imdb-1" in capsys.readouterr().out
    assert (family / "family.html").exists()
