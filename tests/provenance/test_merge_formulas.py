"""The formulas give mergekit's numbers: version 0.1.5 printed them for this example."""

import pytest
import torch

from deltadex.provenance.merges.file_on_rows import TIES, Formula, combine
from deltadex.provenance.merges.reconstruction import slerp_weights

MERGEKIT = {
    "task_arithmetic": "0.131582 -0.107616 0.144764 0.110577 0.09857 -0.029058 0.074791 0.058068",
    "ties": "0.243821 -0.16822 0.120637 0.20256 0.177915 0.0 0.139545 0.134702",
    "ties, normalize: false": "0.12191 -0.117754 0.144764 0.10128 0.088958 0.0 0.097682 0.094292",
    "slerp": "0.082706 -0.109313 0.099364 0.06663 0.068973 -0.013804 0.082948 0.076863",
}
"""ΔW of models A and B with weights .7 and .5, density .5 of `ties`, t .3 of `slerp`."""


def printed(method):
    return pytest.approx([float(number) for number in MERGEKIT[method].split()], abs=2e-6)


def example():
    generator = torch.Generator().manual_seed(7)
    base, a, b = (torch.randn(2, 4, generator=generator) for _ in range(3))
    return base, base + 0.1 * a, base + 0.1 * b


def largest_half(update):
    kept = update.flatten().abs().argsort(descending=True)[: update.numel() // 2]
    mask = torch.zeros(update.numel()).index_fill(0, kept, 1.0)
    return update * mask.view_as(update)


@pytest.mark.parametrize("method", ["task_arithmetic", "ties", "ties, normalize: false"])
def test_sums_and_ties_are_mergekits(method):
    base, a, b = example()
    formula = TIES if method == "ties" else Formula(elects="ties" in method)
    parts = torch.stack([a - base, b - base])
    if formula.elects:
        parts = torch.stack([largest_half(part) for part in parts])

    merged = combine(parts, torch.tensor([0.7, 0.5])[:, None, None], formula)

    assert merged.flatten().tolist() == printed(method)


def test_slerp_is_mergekits():
    base, a, b = example()
    cosine = float((a / a.norm()).flatten() @ (b / b.norm()).flatten())

    one, other = slerp_weights(0.3, cosine)

    assert (one * a + other * b - base).flatten().tolist() == printed("slerp")
    assert slerp_weights(0.3, 0.9999) == (0.7, 0.3)
