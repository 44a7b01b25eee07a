"""Requests made from the OpenAPI document: none is answered with a defect, all as documented."""

import shutil

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from services import API, TOKEN, served

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
NO_DEFECT = ("busy", "store", "too-slow")
"""Codes of a 503 that the document promises."""

PATIENCE_S = 120.0
"""Schemathesis gives up after ten, which a machine that is busy elsewhere may need."""

pytestmark = pytest.mark.filterwarnings(
    # The service's threads run in this process: whichever draws from `random` meanwhile is
    # taken for a strategy that does.
    "ignore:Do not use the .random. module inside strategies"
    ":hypothesis.errors.HypothesisDeprecationWarning"
)


@pytest.fixture(scope="module")
def document(shared_db, tmp_path_factory):
    db = shutil.copy(shared_db, tmp_path_factory.mktemp("fuzz") / "c.duckdb")
    settings = {"quick_seconds": 0.2, "max_seconds": 30.0, "allow_hosts": ("testserver",)}
    with served(db, token=TOKEN, **settings) as client:
        yield schemathesis.openapi.from_asgi(f"{API}/openapi.json", client.app)


def ask_everything(document, max_examples):
    """Ask every operation so many things; whatever comes back must be documented."""
    quick = settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    operations = set()
    for result in document.get_all_operations():
        operation = result.ok()
        operations.add(operation.label)

        @quick
        @given(case=operation.as_strategy())
        def ask(case):
            answer = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_S)
            if answer.status_code != 503 or answer.json().get("code") not in NO_DEFECT:
                case.validate_response(answer, checks=CHECKS)

        ask()
    return operations


def test_no_request_finds_a_defect(document):
    operations = ask_everything(document, 1)

    wanted = {f"GET {API}/similar", f"POST {API}/models", f"DELETE {API}/models/{{model}}"}
    assert wanted <= operations


@pytest.mark.slow
def test_no_request_of_many_finds_a_defect(document):
    ask_everything(document, 400)
