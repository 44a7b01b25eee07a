"""The page over the real service and a real catalog."""

import json
import subprocess
import sys
import time
from socket import socket
from urllib.request import urlopen

import pytest
import torch
from click.testing import CliRunner
from factories import make_family, save_tokenizer, write_reviews
from safetensors.torch import save_file

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


@pytest.mark.parametrize("view", ["models", "failures", "evaluation"])
def test_a_view_of_a_catalog_is_there_while_its_map_is_not(visit, service, view):
    hold = lambda page: page.route("**/api/v1/map*", lambda _: None)  # noqa: E731

    page = visit(f"{service}?view={view}", ready=False, before=hold)

    page.wait_for_selector(f"#{view}-body:not([aria-busy]) > *", timeout=60_000)
    assert page.locator("body.ready").count() == 0


@pytest.mark.slow
def test_files_that_are_chosen_are_answered_by_the_service(visit, service, folder):
    pytest.importorskip("transformers", reason="deltadex[studies] is not installed")
    save_tokenizer(folder / "base")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["query"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    names = [f"base_model.model.encoder.layer.{n}.attention.self.query" for n in range(2)]
    save_file(
        {f"{name}.lora_A.weight": torch.randn(2, 32) for name in names}
        | {f"{name}.lora_B.weight": torch.randn(32, 2) for name in names},
        folder / "adapter_model.safetensors",
    )
    both = [folder / "adapter_config.json", folder / "adapter_model.safetensors"]
    page = visit(service)

    cards = []
    for files in (both, both[1:], [write_reviews(folder / "reviews.csv")]):
        with page.expect_file_chooser() as chooser:
            page.click("#choose")
        chooser.value.set_files(files)
        title = "reviews.csv" if files[0].suffix == ".csv" else "Your adapter"
        page.wait_for_selector(f"#card-title >> text={title}", timeout=180_000)
        cards.append(page.locator("#card").inner_text())
        page.get_by_role("button", name="Take it off the map").click()

    assert all("among 4 compared" in card for card in cards)
    # the scale that a configuration gives all matrices alike changes no cosine
    assert cards[0].partition("Nearest")[2] == cards[1].partition("Nearest")[2]
    assert "24 texts run through the base, none of them stored" in cards[2]
