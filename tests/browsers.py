"""One browser for all tests of a process: Playwright starts but once."""

import shutil
from contextlib import ExitStack

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_FEATURES = (
    # pages of the browser's own, made anew for every window: two thirds of a test's time
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,"
    # Playwright's own, whose list this one replaces
    "AimEnabled,HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding"
)
ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    # only the map's own canvas is drawn by the emulated GPU
    "--disable-gpu-compositing",
    f"--disable-features={NO_FEATURES}",
]


@pytest.fixture(scope="session")
def launch():
    """Starts a browser with more arguments; all are closed at the end."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium to open the page in")
    with playwright.sync_playwright() as started, ExitStack() as stack:

        def start(*more):
            browser = started.chromium.launch(
                executable_path=CHROMIUM, args=[*ARGUMENTS, *more], timeout=60_000
            )
            stack.callback(browser.close)
            return browser

        yield start


@pytest.fixture(scope="session")
def browser(launch):
    return launch()
