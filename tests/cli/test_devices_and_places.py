"""Devices that are not here, and what is no catalog in a catalog's place."""

import os
import socket
from pathlib import Path

import pytest
import torch
from running import run

from deltadex.cli import main
from deltadex.errors import RequestError
from deltadex.indexer.job import choose_device

TEXTS_OF_A_MODEL = ("a-0", "--texts", "{f}/texts.txt")
WITH_DEVICE = {
    "index": ("{f}/base", "{f}/models"),
    "add": ("{f}/models/a-0", "--base", "{f}/base"),
    "find-trained-on": ("{f}/models/labels.csv", "--base", "{f}/base"),
    **dict.fromkeys(("rank", "spectrum"), ("a-0",)),
    **dict.fromkeys(("components", "geometry", "layers"), TEXTS_OF_A_MODEL),
    **dict.fromkeys(("cka", "logit-lens", "ablation"), TEXTS_OF_A_MODEL),
}


def test_every_command_with_a_device_is_tried():
    named = {
        name
        for name in main.list_commands(None)
        if any("--device" in p.opts for p in main.get_command(None, name).params)
    }

    assert named == WITH_DEVICE.keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("command", WITH_DEVICE)
def test_a_device_that_is_not_here_is_a_usage_error(family, command):
    arguments = [argument.format(f=family) for argument in WITH_DEVICE[command]]

    done = run(family, command, *arguments, "--device", "cuda:7")

    assert done.exit_code == 2, done.output
    assert "device 'cuda:7'" in done.output
    assert "this machine has: cpu" in " ".join(done.output.split())
    assert "defect" not in done.output


@pytest.mark.parametrize(
    "name", ["", "nonsense", "cuda:-1", "cuda:x", "hpu", "privateuseone", "meta", "xla", "a\nb"]
)
def test_any_name_of_a_device_is_one_or_a_usage_error(name):
    with pytest.raises(RequestError, match="this machine has: cpu") as refused:
        choose_device(name)

    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def a_socket(path):
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


PLACES = {
    "loop": (lambda p: p.symlink_to(p.name), "a symbolic link"),
    "dangling": (lambda p: p.symlink_to("nowhere"), "a symbolic link"),
    "pipe": (os.mkfifo, "a pipe, socket or device, not a file"),
    "socket": (a_socket, "a pipe, socket or device, not a file"),
    "folder": (Path.mkdir, "is a directory"),
    "nothing": (lambda p: None, "no catalog there yet"),
}


@pytest.mark.parametrize("command", [("ls",), ("sql", "SELECT 1")], ids=str)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_catalog_is_said_in_a_line_of_its_own(tmp_path, place, command):
    make, line = PLACES[place]
    make(tmp_path / "c.duckdb")

    done = run(tmp_path, *command)

    assert done.exit_code in (2, 3)
    assert line in done.output
    assert "defect" not in done.output
    assert os.listdir(tmp_path) == ([] if place == "nothing" else ["c.duckdb"])
