"""Eight bits with scales, and a base in MXFP4, are read as the numbers that they stand for."""

import math

import pytest
import torch
from factories import finetune, make_bert, make_checkpoint, read_config
from safetensors.torch import save_file

import deltadex as dx
from deltadex.indexer.checkpoint import RowBlock, dequantised, open_local, quantization

Q = "encoder.layer.0.attention.self.query"


def opened(folder, tensors, config=None, **options):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    return dequantised(open_local(folder), config, **options)


def int8(weight):
    """Rows as bitsandbytes' `int8_vectorwise_quant` stores them, and their largest values."""
    largest = weight.abs().amax(dim=1)
    return (weight * (127.0 / largest[:, None])).round().to(torch.int8), largest


def fp8(weight, height, width):
    """Blocks as DeepSeek's `weight_scale_inv` has them, one after the other."""
    rows, columns = math.ceil(weight.shape[0] / height), math.ceil(weight.shape[1] / width)
    stored, scales = torch.empty_like(weight), torch.empty(rows, columns)
    for i in range(rows):
        for j in range(columns):
            at = slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)
            scales[i, j] = weight[at].abs().max() / 448
            stored[at] = weight[at] / scales[i, j]
    return stored.to(torch.float8_e4m3fn), scales


def test_integers_of_bitsandbytes_are_rows_times_their_largest_value_over_127(tmp_path):
    weight = torch.randn(6, 32)
    stored, largest = int8(weight)
    checkpoint = opened(
        tmp_path,
        {
            f"{Q}.weight": stored,
            f"{Q}.SCB": largest,
            f"{Q}.weight_format": torch.tensor(0, dtype=torch.uint8),
            f"{Q}.bias": torch.ones(6),
        },
    )

    expected = torch.stack(
        [row.double() * top / 127 for row, top in zip(stored, largest, strict=True)]
    )
    assert set(checkpoint.tensors) == {f"{Q}.weight", f"{Q}.bias"}
    torch.testing.assert_close(checkpoint.read(f"{Q}.weight"), expected.float())
    assert torch.equal(checkpoint.read(f"{Q}.bias"), torch.ones(6))
    error = checkpoint.relative_error(f"{Q}.weight", checkpoint.read(f"{Q}.weight"))
    measured = (expected.float() - weight).norm() / weight.norm()
    assert error == pytest.approx(float(measured), rel=0.15)


@pytest.mark.parametrize(
    ("block", "config"),
    [((128, 128), None), ((8, 16), {"quantization_config": {"weight_block_size": [8, 16]}})],
)
def test_blocks_of_fp8_are_multiplied_with_their_scale(tmp_path, block, config):
    weight = torch.randn(300, 200)
    stored, scales = fp8(weight, *block)
    names = {f"{Q}.weight": stored, f"{Q}.weight_scale_inv": scales}
    checkpoint = opened(tmp_path, names, config)

    read = checkpoint.read(f"{Q}.weight")
    rows = RowBlock(f"{Q}.weight", 130, 135)
    ((_, some),) = checkpoint.stream_rows([rows])

    expected = (
        stored.float()
        * scales.repeat_interleave(block[0], 0)[:300].repeat_interleave(block[1], 1)[:, :200]
    )
    assert torch.equal(read, expected)
    assert torch.equal(some, expected[130:135])
    error = checkpoint.relative_error(f"{Q}.weight", read)
    assert error == pytest.approx(float((read - weight).norm() / weight.norm()), rel=0.15)


@pytest.mark.parametrize(
    ("block", "dtype"), [((1, 32), torch.uint8), ((128, 128), torch.float8_e8m0fnu)]
)
def test_scales_that_are_powers_of_two_are_those_of_transformers(tmp_path, block, dtype):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    generator = torch.Generator().manual_seed(0)
    stored = torch.randn(256, 256, generator=generator).to(torch.float8_e4m3fn)
    grid = 256 // block[0], 256 // block[1]
    scales = torch.randint(110, 130, grid, generator=generator, dtype=torch.uint8).view(dtype)
    checkpoint = opened(tmp_path, {f"{Q}.weight": stored, f"{Q}.weight_scale": scales})

    expected = Fp8Dequantize(None)._dequantize_one(stored, scales, torch.float32)
    assert torch.equal(checkpoint.read(f"{Q}.weight"), expected)
    assert "MXFP8" in checkpoint.note


@pytest.mark.parametrize("scale", [torch.tensor(0.5), torch.tensor([0.5]), torch.full((6, 1), 0.5)])
def test_a_scale_of_a_tensor_or_of_each_row_counts_as_well(tmp_path, scale):
    stored = torch.randn(6, 4).to(torch.float8_e4m3fn)
    checkpoint = opened(tmp_path, {f"{Q}.weight": stored, f"{Q}.weight_scale": scale})

    assert torch.equal(checkpoint.read(f"{Q}.weight"), stored.float() * 0.5)


@pytest.mark.parametrize(
    "tensors",
    [
        {f"{Q}.weight": torch.ones(4, 4).to(torch.float8_e4m3fn)},
        {f"{Q}.weight": torch.ones(4, 4, dtype=torch.int8)},
        {
            f"{Q}.weight": torch.ones(4, 4, dtype=torch.int8),
            f"{Q}.weight_scale": torch.ones(4, 1),
            f"{Q}.weight_zero_point": torch.ones(4, 1, dtype=torch.int8),
        },
        {
            f"{Q}.weight": torch.ones(300, 4).to(torch.float8_e4m3fn),
            f"{Q}.weight_scale_inv": torch.ones(2, 1),
        },
        {
            f"{Q}.weight": torch.ones(64, 64, dtype=torch.int8),
            f"{Q}.weight_scale": torch.full((64, 2), 127, dtype=torch.uint8),
        },
    ],
)
def test_eight_bits_without_fitting_scales_stay_quantised(tmp_path, tensors):
    checkpoint = opened(tmp_path, tensors)

    assert quantization(None, checkpoint.tensors.values(), ()) is not None


def test_the_experts_of_a_base_in_mxfp4_are_those_of_transformers(tmp_path):
    from transformers.integrations.mxfp4 import _convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(118, 128, (3, 10, 2), generator=generator, dtype=torch.uint8)
    stem = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{stem}_blocks": blocks, f"{stem}_scales": scales}
    as_base = opened(tmp_path, tensors, is_base=True)

    expected = _convert_moe_packed_tensors(blocks, scales)
    assert as_base.tensors[stem].shape == tuple(expected.shape)
    assert torch.equal(as_base.read(stem), expected)
    assert quantization(None, opened(tmp_path, tensors).tensors.values(), ()) == "MXFP4"


def in_eight_bits(tensors, scheme):
    """The layer matrices as a scheme stores them."""
    stored = {}
    for name, t in tensors.items():
        if ".layer." not in name or t.dim() != 2:
            stored[name] = t
        elif scheme == "mxfp8":
            scales = (t.unfold(1, 32, 32).abs().amax(2) / 448).log2().ceil()
            values = t / scales.exp2().repeat_interleave(32, 1)
            stored[name] = values.to(torch.float8_e4m3fn)
            stored[f"{name}_scale"] = (scales + 127).to(torch.uint8)
        elif scheme == "int8":
            stored[name], stored[name.replace("weight", "SCB")] = int8(t)
        else:
            stored[name], stored[f"{name}_scale_inv"] = fp8(t, 128, 128)
    return stored


DECLARED = {
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "mxfp8": {"quant_method": "mxfp8"},
}


def test_models_in_eight_bits_are_indexed_beside_their_originals(tmp_path):
    base = make_bert(tmp_path / "base", seed=0, width=64)
    models = tmp_path / "models"
    for seed, (scheme, declared) in enumerate(DECLARED.items()):
        tuned = finetune(base, seed=seed, scale=0.2)
        make_checkpoint(models / f"{scheme}-original", tuned, config=tmp_path / "base")
        for name, tensors in ((scheme, tuned), (f"{scheme}-copy", base)):
            quantised = read_config(tmp_path / "base") | {"quantization_config": declared}
            make_checkpoint(models / name, in_eight_bits(tensors, scheme), config=quantised)

    with dx.open(tmp_path / "c.duckdb") as db:
        report = db.index(str(tmp_path / "base"), models).to_json()
        near = [db.find_similar(s, k=1).to_json()["neighbours"][0]["model"] for s in DECLARED]
        shown = [db.show(scheme).to_json() for scheme in DECLARED]

    refused = report["failed"] + report["skipped_models"]
    assert report["indexed"] == 6
    assert {row["model"]: row["code"] for row in refused} == {
        f"{scheme}-copy": "no-update" for scheme in DECLARED
    }
    assert near == [f"{scheme}-original" for scheme in DECLARED]
    for model in shown:
        assert any("dequantised from" in note for note in model["notes"])
        assert all(slot["noise_floor"] > 0 for slot in model["slots"])
