"""Devices that are not here, and what is no catalog in a catalog's place."""

import os
from pathlib import Path

import pytest
import torch
from running import run

WITH_DEVICE = {
    "index": ("{f}/base", "{f}/models"),
    "find-trained-on": ("{f}/models/labels.csv", "--base", "{f}/base"),
    "rank": ("a-0",),
    "components": ("a-0", "--texts", "{f}/texts.txt"),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("command", WITH_DEVICE)
def test_a_device_that_is_not_here_is_a_usage_error(family, command):
    arguments = [argument.format(f=family) for argument in WITH_DEVICE[command]]

    done = run(family, command, *arguments, "--device", "cuda:7")

    assert done.exit_code == 2, done.output
    assert "device 'cuda:7'" in done.output
    assert "this machine has: cpu" in " ".join(done.output.split())
    assert "defect" not in done.output


PLACES = {
    "loop": (lambda p: p.symlink_to(p.name), "a symbolic link"),
    "dangling": (lambda p: p.symlink_to("nowhere"), "a symbolic link"),
    "pipe": (os.mkfifo, "a pipe, socket or device, not a file"),
    "folder": (Path.mkdir, "is a directory"),
    "nothing": (lambda p: None, "no catalog there yet"),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_catalog_is_said_in_a_line_of_its_own(tmp_path, place):
    make, line = PLACES[place]
    make(tmp_path / "c.duckdb")

    for command in (("ls",), ("sql", "SELECT 1"), ("backup", tmp_path / "b.duckdb")):
        done = run(tmp_path, *command)

        assert done.exit_code in (2, 3)
        assert line in done.output
        assert "defect" not in done.output
    assert os.listdir(tmp_path) == ([] if place == "nothing" else ["c.duckdb"])
