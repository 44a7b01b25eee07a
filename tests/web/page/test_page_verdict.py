"""The card's verdict, short names, copies, and what words mean."""

import pytest
from stand_in import MadeUp, plain, served, until

LONG = "lab0/a-model-with-a-name-that-is-much-longer-than-a-line-of-the-card"


class WithCopies(MadeUp):
    """The same family, whose first model has the next two of its dataset as copies."""

    def __post_init__(self):
        super().__post_init__()
        for copy in (5, 10):
            self.rows[copy] |= {"x": self.rows[0]["x"], "y": self.rows[0]["y"]}


@pytest.fixture(scope="module")
def copies():
    with served(WithCopies(models=20, names=tuple(f"lab0/run-{n}" for n in range(20)))) as address:
        yield address


def test_names_drop_what_all_share_and_are_whole_on_hover_and_copied(visit, copies):
    page = visit(f"{copies}?model=lab0/run-1", permissions=["clipboard-read", "clipboard-write"])
    page.wait_for_selector("#neighbours tbody tr")

    first = page.locator("#neighbours .link").first
    whole = first.get_attribute("title").split("\n")[0]
    page.get_by_role("button", name=f"Copy the name {whole}").click()
    page.wait_for_selector("#toast >> text=Name copied")

    assert whole == f"lab0/run-{first.inner_text()}"
    assert page.evaluate("navigator.clipboard.readText()") == whole


def test_a_long_name_has_its_ellipsis_inside(visit):
    with served(MadeUp(models=12, names=("lab0/x", LONG))) as address:
        page = visit(address)

        shown = page.evaluate("(name) => deltadex.words.short(name)", LONG)

    assert len(shown) == 30
    start, end = shown.split("…")
    assert LONG.endswith(end)
    assert LONG.removeprefix("lab").startswith(start) or LONG.startswith(start)


def test_copies_are_one_line_with_a_badge(visit, copies):
    page = visit(f"{copies}?model=lab0/run-15")
    page.wait_for_selector("#neighbours tbody tr")

    badge = page.locator("#neighbours .badge")
    assert badge.all_inner_texts() == ["×3"]
    assert badge.get_attribute("aria-label").startswith("and 2 copies: lab0/run-")
    assert page.locator("#neighbours tbody tr").count() == 8


def test_a_question_mark_explains_the_word_beside_it(visit, copies):
    page = visit(f"{copies}?model=lab0/run-1")
    page.wait_for_selector("#neighbours tbody tr")

    page.get_by_role("button", name="What is fdr?").click()
    page.wait_for_selector("#meaning >> text=False discovery rate")
    page.keyboard.press("Escape")
    until(page, "!document.getElementById('meaning').matches(':popover-open')")
    page.click("#views [data-view=clusters]")
    page.get_by_role("button", name="What is ARI?").click()

    assert "Adjusted Rand index" in plain(page, "#meaning")
