"""The code of docs/python.md runs from top to bottom, in a folder with a family."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import deltadex

PAGE = Path(deltadex.__file__).parent / "docs" / "python.md"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not run from a checkout")


README = PAGE.parent.parent / "README.md"


def test_the_python_lines_of_the_readme_run_and_say_what_to_pandas_needs(family, monkeypatch):
    """Their files have the names of the family here; pandas is missing, as with `pip install .`"""
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    (family / "family.duckdb").unlink()
    (family / "adapters").symlink_to(family / "models")
    shutil.copy(family / "models" / "labels.csv", family)
    monkeypatch.setitem(sys.modules, "pandas", None)
    block = block.replace('"gpt2"', '"base"').replace('"run-7"', '"imdb-0"')
    before, needs_pandas, after = re.split(r"^(hits\.to_pandas\(\).*\n)", block, flags=re.MULTILINE)
    names = {}

    exec(compile(before + after, README.name, "exec"), names)
    names["db"].close()
    with pytest.raises(ModuleNotFoundError, match=r"install 'deltadex\[pandas\]'"):
        exec(compile(needs_pandas, README.name, "exec"), names)
    assert len(names["hits"]) == 3


@pytest.mark.slow
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
