"""One indexed family for all commands; those that change what is said of it take a copy."""

import shutil

import pytest
from factories import make_family
from running import TEXTS, run


@pytest.fixture(scope="session")
def indexed(tmp_path_factory):
    """`base`, four labelled `models`, `texts.txt`, and the catalog of them."""
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    result = run(folder, "index", folder / "base", models, "--labels", models / "labels.csv")
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def family(indexed, tmp_path_factory):
    """The same, with the catalog as it was indexed, whatever another module did to it."""
    kept = tmp_path_factory.mktemp("kept") / "c.duckdb"
    shutil.copy(indexed / "c.duckdb", kept)
    yield indexed
    for path in indexed.glob("c.duckdb*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copy(kept, indexed / "c.duckdb")
