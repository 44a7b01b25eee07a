"""Pages that notice what goes wrong in them."""

from urllib.parse import urlsplit

import pytest
from stand_in import MadeUp, served


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
