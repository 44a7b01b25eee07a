"""Commands that are stopped."""

import pytest
from running import run


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("find-similar", "a-0"), "What was not finished is not saved; run the same"),
        (("merge", "{f}/c.duckdb"), "What was finished is saved; run the same command again to"),
        (("index", "{f}/base", "{f}/models"), "No model was finished yet; run the same command"),
    ],
)
def test_a_stopped_command_says_what_is_saved(family, monkeypatch, asked, said):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("deltadex.store.Catalog.open", stop)

    result = run(family, *(word.format(f=family) for word in asked))

    assert result.exit_code == 130
    assert result.stderr.startswith(f"Interrupted. {said}")
