"""What answers from stored results loads no library that only a new study needs."""

import subprocess
import sys

import pytest

HEAVY = {"duckdb", "faiss", "matplotlib", "scipy", "sklearn", "torch", "transformers"}


@pytest.mark.parametrize(
    "statement",
    [
        "import deltadex.study.diff",
        "import deltadex.study.texts",
        "from deltadex.study.rank import RankReport, family_ranks, rank_study",
        "from deltadex.study.profile import profile_settings; profile_settings()",
        "from deltadex.study.ablation import AblationStudyReport, read_senses",
    ],
)
def test_stored_results_load_nothing_heavy(statement):
    code = f"{statement}; import sys; print(*sorted({HEAVY!r} & set(sys.modules)))"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert loaded.split() == []
