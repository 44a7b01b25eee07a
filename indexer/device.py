"""Where updates are compressed: a GPU where there is one, else the processor."""

from __future__ import annotations

import torch

from ..errors import RequestError


def choose_device(name: str) -> str:
    """The device that `auto`, `cpu`, `cuda`, `cuda:1`, … stands for on this machine.

    Raises:
        RequestError: torch does not know it, or does not find it here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as err:
        raise RequestError(f"device {name!r}: expected auto, cpu, or cuda") from err
    if device.type == "cpu":
        return "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as err:
        reason = str(err).splitlines()[0]
        raise RequestError(f"device {name!r} cannot be used here: {reason}") from err
    return name
