"""Progress where stderr is no terminal: plain lines, and none for a short run."""

import time
from dataclasses import replace

import pytest
from catalogs import refused

from deltadex.questions.terminal.progress import RunProgress, time_left


def outcome(id):
    return replace(refused(id), bytes_read=1 << 20)


def test_a_line_says_how_many_how_fast_and_how_long_and_is_printed_again_and_again(capfd):
    with RunProgress(quiet=False, every_s=0.05) as progress:
        progress.begin(4, 4 << 20)
        progress.outcome(outcome("a\x1b[31m"))
        progress.outcome(outcome("b"))
        time.sleep(0.3)

    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) >= 2
    last = err.splitlines()[-1]
    assert last.startswith("indexing 2/4 · 2.0 MiB of 4.0 MiB, ")
    assert "/s · 2 not indexed · about 0 s left" in last
    assert "\x1b" not in err


def test_a_second_family_counts_from_nothing(capfd):
    with RunProgress(quiet=False, every_s=0.05) as progress:
        progress.begin(1, 1 << 20)
        progress.outcome(outcome("a"))
        progress.begin(2, 4 << 20)
        time.sleep(0.3)

    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("indexing 0/2 · ")
    assert "not indexed" not in last
    assert "MiB" not in last


@pytest.mark.parametrize(
    ("elapsed", "share", "since", "said"),
    [
        (4.0, 0.02, (0.0, 0.0), "at most 3 min left"),
        (20.0, 0.2, (10.0, 0.04), "50 s to 1 min left"),
        (100.0, 0.5, (90.0, 0.45), "about 2 min left"),
        (5.0, 0.001, (0.0, 0.0), "5 s so far"),
        (30.0, 0.5, (20.0, 0.5), "about 30 s left"),
    ],
)
def test_the_time_left_is_a_range_while_the_pace_changes(elapsed, share, since, said):
    assert time_left(elapsed, share, since) == said


def test_a_short_run_and_a_quiet_one_print_nothing(capfd):
    with RunProgress(quiet=False) as progress:
        progress.begin(1, 0)
        progress.outcome(outcome("a"))
    with RunProgress(quiet=True, every_s=0.01) as progress:
        progress.begin(1, 0)
        time.sleep(0.1)

    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("come", "total", "shown"),
    [
        (3 << 20, 12 << 20, "indexing 0/2 · 3.0 MiB of 12.0 MiB, "),
        (13 << 20, 12 << 20, "indexing 0/2 · 13.0 MiB, "),
    ],
)
def test_bytes_are_shown_as_they_come_and_never_beyond_their_sum(capfd, come, total, shown):
    with RunProgress(quiet=False, every_s=0.05) as progress:
        progress.begin(2, total)
        progress.reading(lambda: (come, total))
        time.sleep(0.3)

    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith(shown)
    assert (" left" in lines[-1]) == (come < total)
