"""The page over the real service and a real catalog."""

import subprocess
import sys
import time
from socket import socket
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from factories import make_family

from deltadex.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(folder):
    pytest.importorskip("fastapi", reason="deltadex[serve] is not installed")
    models = make_family(folder)
    db = ["--db", str(folder / "c.duckdb")]
    labels = ["--labels", str(models / "labels.csv")]
    indexed = CliRunner().invoke(main, ["index", str(folder / "base"), str(models), *labels, *db])
    assert indexed.exit_code == 0, indexed.output
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = subprocess.Popen(
        [sys.executable, "-m", "deltadex", "serve", "--port", str(port), *db],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(f"{address}api/v1/health")
        yield address
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def wait_for(address, seconds=40.0):
    last = time.monotonic() + seconds
    while True:
        try:
            urlopen(address, timeout=5).close()
        except OSError:
            assert time.monotonic() < last, "the service did not start"
            time.sleep(0.2)
        else:
            return


def test_the_service_answers_what_the_page_asks(visit, service):
    page = visit(service)
    assert page.locator("#counted").inner_text() == "4 fine-tunes of base"

    page.locator("#search").fill("a-0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#neighbours tbody tr")
    nearest = page.locator("#neighbours .link").first.inner_text()
    page.wait_for_selector(".heat td")
    page.locator("#neighbours button[aria-label^=Explain]").first.click()
    page.wait_for_selector("#explain .bars")
    for view in ("models", "clusters", "lineage", "evaluation", "failures"):
        page.click(f"#views [data-view={view}]")
        page.wait_for_selector(f"#{view}-body:not([aria-busy]) > *", timeout=60_000)

        assert page.locator("[role=alert]:visible").count() == 0, view
    assert nearest == "a-1"
