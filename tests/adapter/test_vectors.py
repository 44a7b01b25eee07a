"""VeRA and (IA)³ against PEFT's own merges."""

import peft
import pytest
import torch
from peft_adapters import MemoryCheckpoint, assert_same_updates, make_adapter, read_folder

from deltadex.errors import ModelError
from deltadex.indexer.adapter import read_adapter


@pytest.mark.parametrize(
    ("kind", "targets"),
    [
        ("bert", ["query", "intermediate.dense", "attention.output.dense"]),
        ("gpt2", ["c_attn"]),
    ],
)
def test_vera_equals_the_merged_weights(kind, targets, tmp_path):
    merged = make_adapter(kind, peft.VeraConfig(r=3, target_modules=targets), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == "vera"
    assert {width for _, width in adapter.modules.values()} == {0}
    assert_same_updates(adapter, merged)


@pytest.mark.filterwarnings("ignore:Specified to not save")
def test_vera_without_its_shared_matrices_is_refused(tmp_path):
    config = peft.VeraConfig(r=3, target_modules=["query"], save_projection=False)
    make_adapter("bert", config, tmp_path)

    with pytest.raises(ModelError, match=r"^unsupported-adapter: .*save_projection=True"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (
            "bert",
            {
                "target_modules": ["key", "value", "intermediate.dense"],
                "feedforward_modules": ["intermediate.dense"],
            },
        ),
        (
            "gpt2",
            {
                "target_modules": ["c_attn", "mlp.c_proj"],
                "feedforward_modules": ["mlp.c_proj"],
            },
        ),
    ],
)
def test_ia3_equals_the_merged_weights(kind, settings, tmp_path):
    merged = make_adapter(kind, peft.IA3Config(**settings), tmp_path)

    adapter = read_folder(tmp_path)

    assert adapter.method == "ia3"
    assert adapter.needs_base == adapter.modules.keys()
    assert_same_updates(adapter, merged)


def test_ia3_scales_rows_or_columns_and_says_which_side_it_knows():
    checkpoint = MemoryCheckpoint(
        {"m.0.k.ia3_l": torch.tensor([[2.0], [1.0]]), "m.0.down.ia3_l": torch.ones(1, 3)}
    )

    adapter = read_adapter(checkpoint, {"peft_type": "IA3"})
    delta = adapter.delta("m.0.k", torch.full((2, 3), 5.0))

    assert adapter.modules == {"m.0.k": (2, 0), "m.0.down": (0, 3)}
    assert delta.matrix.tolist() == [[5.0] * 3, [0.0] * 3]
    with pytest.raises(ModelError, match="shape"):
        adapter.delta("m.0.k", torch.ones(3, 3))


@pytest.mark.parametrize(
    "tensors",
    [
        {"h.0.k.ia3_l": torch.ones(2, 3)},
        {
            "base_model.vera_A": torch.ones(3, 4),
            "base_model.vera_B": torch.ones(5, 2),
            "h.0.q.vera_lambda_b": torch.ones(5),
            "h.0.q.vera_lambda_d": torch.ones(3),
        },
        {
            "base_model.vera_A": torch.ones(3, 4),
            "base_model.vera_B": torch.ones(5, 3),
            "h.0.q.vera_lambda_b": torch.ones(6),
            "h.0.q.vera_lambda_d": torch.ones(3),
        },
    ],
)
def test_vectors_that_do_not_fit_are_refused(tensors):
    with pytest.raises(ModelError, match=r"^shape-mismatch: "):
        read_adapter(MemoryCheckpoint(tensors), None)


def test_vera_narrower_than_the_base_is_refused():
    adapter = read_adapter(
        MemoryCheckpoint(
            {
                "base_model.vera_A": torch.ones(3, 4),
                "base_model.vera_B": torch.ones(5, 3),
                "h.0.q.vera_lambda_b": torch.ones(5),
                "h.0.q.vera_lambda_d": torch.ones(3),
            }
        ),
        None,
    )

    with pytest.raises(ModelError, match=r"^shape-mismatch: "):
        adapter.delta("h.0.q", torch.ones(5, 6))
