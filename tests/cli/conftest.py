"""One indexed family for all commands; those that change what is said of it take a copy."""

import pytest
from factories import make_family
from running import TEXTS, run


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """`base`, four labelled `models`, `texts.txt`, and the catalog of them."""
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    result = run(folder, "index", folder / "base", models, "--labels", models / "labels.csv")
    assert result.exit_code == 0, result.output
    return folder
