"""Reading goes on while another process writes to the same catalog."""

import json
import time

import httpx2
import pytest
from factories import make_family
from running import started
from services import wait_until

ADDED = 240


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base, four models that are indexed first, and `ADDED` more."""
    folder = tmp_path_factory.mktemp("family")
    first = make_family(folder / "first")
    later = make_family(folder / "later", pairs=[f"set{n:02}" for n in range(ADDED // 4)], runs=4)
    return folder / "first" / "base", first, later


def ask(address, path, **params):
    answer = httpx2.get(f"{address}/api/v1/{path}", params=params, timeout=30)
    return answer.raise_for_status().json()


def are_found(address):
    """Whether searches find models that were added."""
    nearest = [ask(address, "similar", model=id, k=100) for id in ("a-0", "set07-1")]
    found = {near["model"] for answer in nearest for near in answer["neighbours"]}
    return found >= {"set07-0", "set07-2", "set07-3"}


@pytest.mark.slow
def test_search_answers_while_many_models_are_added(family, tmp_path):
    base, first, later = family
    db = tmp_path / "c.duckdb"
    with started("index", base, first, "--db", db, "--quiet") as indexing:
        assert indexing.wait() == 0
    with started("serve", "--db", db, "--port", 0, "--json") as serving:
        document = "".join(iter(serving.stdout.readline, "}\n")) + "}"
        address = json.loads(document)["address"].rstrip("/")
        wait_until(lambda: httpx2.get(f"{address}/api/v1/ready").is_success)
        totals, n_requests = set(), 0
        with started("index", base, later, "--db", db, "--quiet", "--json") as indexing:
            while indexing.poll() is None:
                answer = ask(address, "similar", model="a-0", k=3)
                assert len(answer["neighbours"]) == 3
                totals.add(ask(address, "models", limit=1)["total"])
                time.sleep(0.2)
                n_requests += 1
            report = json.loads(indexing.stdout.read())
        assert indexing.returncode == 0
        assert report["indexed"] == ADDED
        # it was seen growing, not only before and after
        assert n_requests > 10
        assert len(totals) > 5
        assert max(totals) <= ADDED + 4

        assert ask(address, "models", limit=1)["total"] == ADDED + 4
        wait_until(lambda: are_found(address))
