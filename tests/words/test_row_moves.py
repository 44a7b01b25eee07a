"""Which rows of an embedding moved."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deltadex.indexer.footprint import RowPair, measure_few_rows, measure_rows

ROWS, WIDTH = 2000, 48


def base_rows(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return (0.05 * torch.randn(ROWS, WIDTH, generator=generator)).to(dtype)


def touched_rows(base, share, *, decay=0.0, steps=200, move=1e-3, seed=1):
    """Rows as AdamW leaves them: a share moved, all shrunk once a step, and rounded each time."""
    generator = torch.Generator().manual_seed(seed)
    rows = base.float().clone()
    chosen = torch.randperm(ROWS, generator=generator)[: int(share * ROWS)]
    for _ in range(steps):
        rows *= 1 - decay / steps
    rows[chosen] += move * torch.randn(len(chosen), WIDTH, generator=generator)
    return rows, set(chosen.tolist())


@settings(max_examples=12, deadline=None)
@given(
    share=st.just(0.0) | st.floats(0.01, 0.9),
    decay=st.sampled_from([0.0, 1e-6, 1e-4, 1e-2]),
    base_type=st.sampled_from([torch.float32, torch.bfloat16]),
    stored=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    blocks=st.sampled_from([64, 700, ROWS]),
    seed=st.integers(0, 99),
)
def test_touched_rows_are_those_that_moved_and_no_others(
    share, decay, base_type, stored, blocks, seed
):
    base = base_rows(seed, base_type)
    rows, chosen = touched_rows(base, share, decay=decay, move=5e-3, seed=seed)

    found = measure_rows(list(map(RowPair, base.split(blocks), rows.to(stored).split(blocks))))

    assert found.kind == ("exact" if share else "frozen")  # a decay and rounding touch no row
    # float32 rounds a decay in every step, by up to a tenth of it
    assert len(set(found.rows.tolist()) - chosen) <= ROWS // 1000
    assert len(found.rows) >= 0.99 * len(chosen)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-28, 1e37])
@pytest.mark.parametrize("others_move", [False, True])
def test_rows_that_are_zeros_in_the_base_or_tiny_or_huge_are_touched_where_they_moved(
    stored, scale, others_move
):
    base = base_rows(dtype=stored)
    base[: 40 if scale > 1e-30 else 200] *= scale  # zeros, or nearly, may pad a base
    rows, chosen = touched_rows(base, 0.05 * others_move, decay=1e-4 * others_move)
    rows[:20] += 0.05 * max(scale, 1.0) * torch.randn(20, WIDTH)

    found = measure_rows([RowPair(base, rows.to(stored))])

    assert found.kind == "exact"
    assert set(found.rows.tolist()) >= set(range(20))
    assert set(found.rows.tolist()) <= chosen | set(range(20))
    assert np.isfinite(found.moves).all()
    assert (found.moves[:20] > 0.1).all()
    few = measure_few_rows(base[:40], rows[:40].to(stored))
    assert set(few.rows.tolist()) >= set(range(20))


def test_an_embedding_of_which_every_row_moved_its_own_way_is_dense():
    base = base_rows()
    rows, _ = touched_rows(base, 1.0)

    found = measure_rows([RowPair(base, rows)])

    assert found.kind == "dense"
    assert len(found.rows) == 0


def train_tied(table, layer, optimizer, n_tokens, steps):
    """The tokens that a language model with this table as its head too was trained on."""
    seen = set()
    for _ in range(steps):
        tokens = (n_tokens * torch.rand(48, 12) ** 3).long()
        seen |= set(tokens.flatten().tolist())
        scores = 8 * torch.tanh(layer(table[tokens])) @ table.T
        following = tokens.roll(1, 1).flatten()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), following).backward()
        optimizer.step()
    return seen


@pytest.fixture(scope="module")
def tied_base():
    """A table that is its model's head too, and the layer between, trained for a while."""
    torch.manual_seed(0)
    table, layer = torch.nn.Parameter(base_rows()[:, :32].clone()), torch.nn.Linear(32, 32)
    train_tied(table, layer, torch.optim.AdamW([table, *layer.parameters()], 1e-3), ROWS, 120)
    return table, layer


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (lambda trained: torch.optim.AdamW(trained, 5e-4, weight_decay=10.0), ["tied"]),
        (lambda trained: torch.optim.SGD(trained, 1e-2, 0.9), ["tied", "dense"]),
        (lambda trained: torch.optim.SGD(trained, 1e-2, 0.9, weight_decay=0.1), ["tied", "dense"]),
        (lambda trained: torch.optim.SGD(trained, 1e-2, 0.9, weight_decay=0.01), ["tied", "dense"]),
        (lambda trained: torch.optim.Adam(trained, 5e-4, weight_decay=0.05), ["dense"]),
    ],
)
def test_of_a_tied_head_no_unseen_token_is_named_whatever_decays(tied_base, make, kinds):
    table, layer = deepcopy(tied_base)
    torch.manual_seed(1)
    seen = train_tied(table, layer, make([table, *layer.parameters()]), 500, 40)

    for stored in (torch.float32, torch.float16, torch.bfloat16):
        found = measure_rows(
            [RowPair(tied_base[0].detach(), table.detach().to(stored))], is_tied=True
        )
        assert found.kind in (kinds[:1] if stored is torch.float32 else kinds)
        assert set(found.rows.tolist()) <= seen
        assert len(found.rows) > 150 or found.kind == "dense"
