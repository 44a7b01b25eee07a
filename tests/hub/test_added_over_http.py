"""Many models of the Hub in one request: a job, and the outcome of each."""

import pytest
from fault_family import MEMBERS
from listening import TOKEN, listening

import deltadex as dx


@pytest.mark.slow  # 29 s: some members are asked for again
def test_each_of_many_models_has_an_outcome(family, tmp_path):
    path = tmp_path / "c.duckdb"
    with dx.open(path) as db:
        db.add("org/full", base="org/base")
    with (
        listening(path, token=TOKEN, allow_hub=True, max_seconds=0.01) as url,
        dx.connect(url, token=TOKEN) as remote,
    ):
        report = remote.add(*MEMBERS, "org/nowhere", base="org/base")
        again = remote.add("org/full", base="org/base").to_json()
        outcomes = {row["model"]: row for row in report.to_json()["outcomes"]}

        assert list(outcomes) == [*MEMBERS, "org/nowhere"]
        assert outcomes["org/nowhere"]["code"] == "private-or-missing"
        indexed = [name for name, row in outcomes.items() if row["status"] == "indexed"]
        assert set(indexed) == {row["model"] for row in remote.models(status="indexed")}
        assert len(indexed) >= 4
        assert again["outcomes"][0] == {
            **{"model": "org/full", "status": "indexed", "code": None, "reason": None}
        }
