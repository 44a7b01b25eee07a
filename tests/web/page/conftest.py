"""One browser for all tests of the page, and pages that notice what goes wrong in them."""

import shutil
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from stand_in import MadeUp, served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NO_FEATURES = (
    # pages of the browser's own, made anew for every window: two thirds of a test's time
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    # Playwright's own, whose list this one replaces
    "AimEnabled",
    "HttpsUpgrades",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
)
ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    # only the map's own canvas is drawn by the emulated GPU
    "--disable-gpu-compositing",
    f"--disable-features={','.join(NO_FEATURES)}",
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


@pytest.fixture(scope="module")
def family():
    return MadeUp()


@pytest.fixture(scope="module")
def address(family):
    with served(family) as at:
        yield at


@pytest.fixture
def visit(browser):
    """Opens an address in a fresh context; at the end, nothing may have gone wrong in any page."""
    contexts, troubles = [], []

    def go(
        address,
        *,
        width=1280,
        height=800,
        ready=True,
        expected="",
        within=None,
        before=None,
        **options,
    ):
        context = (within or browser).new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        own = urlsplit(address).netloc

        def note(kind, text):
            if not (expected and expected in text):
                troubles.append(f"{kind}: {text}")

        page.on("console", lambda m: note("console", m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: note("error", str(error)))
        page.on(
            "request", lambda r: None if urlsplit(r.url).netloc == own else note("request", r.url)
        )
        if before is not None:
            before(page)
        page.goto(address)
        if ready:
            page.wait_for_selector("body.ready")
        return page

    yield go
    for context in contexts:
        context.close()
    assert troubles == []
