"""`deltadex spectrum`: the eigenvalues of weights and updates, and the power law of their tail."""

from __future__ import annotations

from dataclasses import dataclass

import click

from .. import terminal
from ..terminal.options import Common, option, takes
from .studying import StudiedModel, run_study


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrumOptions:
    """Of what the spectrum is, and how it is tested."""

    weights: bool = option(
        "--weights", is_flag=True, help="Measure the weights W alone, without ΔW."
    )
    draws: int = option(
        "--draws",
        type=click.IntRange(min=0),
        default=100,
        show_default=True,
        help="Test by N draws whether a power law is plausible.",
        metavar="N",
    )
    device: str = option(
        "--device",
        default="cpu",
        show_default=True,
        help="Compute singular values on this device.",
    )


@click.command()
@takes(StudiedModel, SpectrumOptions)
def spectrum(common: Common, studied: StudiedModel, options: SpectrumOptions) -> None:
    """Fit a power law to the largest eigenvalues of ΔW and of W, by layer and role.

    \b
    Example:
      deltadex spectrum ./my-run -o spectrum.png
    """
    run_study(
        common,
        studied,
        terminal.show_spectra,
        lambda db: db.spectrum(
            studied.model,
            weights=options.weights,
            draws=options.draws,
            base=studied.base,
            device=options.device,
        ),
    )
