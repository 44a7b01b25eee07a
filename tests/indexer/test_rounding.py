"""A refused copy in four bits is said to be a rounding of the model that it was made of."""

import json
from functools import partial

import torch
from factories import finetune, make_bert, make_checkpoint, read_config, save_models

import deltadex as dx

NF4 = torch.tensor(
    [
        *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0),
        *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
    ]
)
"""QLoRA's appendix E; the numbers that bitsandbytes stores."""

DYNAMIC = torch.linspace(-1, 1, 256)
"""Levels of nested scales; bitsandbytes stores its own beside them."""


def in_nf4(name, weight, *, nested):
    """A weight as `Params4bit` saves it."""
    blocks = weight.to(torch.bfloat16).float().view(-1, 64)
    largest = blocks.abs().amax(1)
    codes = (blocks / largest[:, None])[..., None].sub(NF4).abs().argmin(-1).flatten().byte()
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [*weight.shape]}
    parts = {"absmax": largest, "quant_map": NF4.clone()}
    if nested:
        offset = float(largest.mean())
        centred = torch.nn.functional.pad(largest - offset, (0, -len(largest) % 256)).view(-1, 256)
        tops = centred.abs().amax(1)
        shares = (centred / tops[:, None]).flatten()[: len(largest)]
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": offset}
        parts["absmax"] = shares[:, None].sub(DYNAMIC).abs().argmin(-1).byte()
        parts |= {"nested_absmax": tops, "nested_quant_map": DYNAMIC.clone()}
    text = torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)
    parts["quant_state.bitsandbytes__nf4"] = text
    packed = (codes[::2] << 4 | codes[1::2]).view(-1, 1)
    return {name: packed} | {f"{name}.{part}": tensor for part, tensor in parts.items()}


def in_gptq(name, weight, *, version, group=32):
    """A weight as GPTQModel packs it; its rounding errors are larger than the nearest's."""
    stem, (height, width) = name.removesuffix(".weight"), weight.shape
    groups = torch.arange(width) // group
    split = weight.view(height, -1, group)
    low, high = split.amin(2), split.amax(2)
    scales = (high - low) / 15
    zeros = (-low / scales).round()
    noise = 0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(77))
    codes = (weight / scales[:, groups] + zeros[:, groups] + noise).round().clamp(0, 15).int()
    shifts = torch.arange(0, 32, 4)
    stored = (zeros - int(version == 1)).int() & 15
    qzeros = (stored.T.reshape(-1, height // 8, 8) << shifts).sum(-1)
    qweight = (codes.T.reshape(-1, 8, height) << shifts[:, None]).sum(1)
    return {
        f"{stem}.qweight": qweight.to(torch.int32),
        f"{stem}.qzeros": qzeros.to(torch.int32),
        f"{stem}.scales": scales.T.half(),
        f"{stem}.g_idx": groups.int(),
    }


def in_awq(name, weight, *, group=32):
    """A weight as AutoAWQ's WQLinear_GEMM packs it, after its search for scales of inputs."""
    stem, (height, width) = name.removesuffix(".weight"), weight.shape
    noise = torch.Generator().manual_seed(len(name))
    scaled = weight * (0.5 + 1.5 * torch.rand(width, generator=noise))
    groups = torch.arange(width) // group
    split = scaled.view(height, -1, group)
    low, high = split.amin(2), split.amax(2)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(0, 15)
    codes = (scaled / scales[:, groups] + zeros[:, groups]).round().clamp(0, 15).int()

    def packed(numbers):
        """pack_intweight of the format: of every eight outputs, number order_map[i] at bit 4 i."""
        result = torch.zeros(len(numbers), numbers.shape[1] // 8, dtype=torch.int32)
        for column in range(result.shape[1]):
            for i, other in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
                result[:, column] |= numbers[:, column * 8 + other] << (i * 4)
        return result

    parts = {"qweight": packed(codes.T), "qzeros": packed(zeros.T.int()), "scales": scales.T.half()}
    return {f"{stem}.{part}": tensor for part, tensor in parts.items()}


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
NF4_CONFIG = {"quant_method": "bitsandbytes", "load_in_4bit": True}
GPTQ = {"quant_method": "gptq", "bits": 4}
NEAREST = "of the models that are known it is nearest to "
FORMS = {
    "awq": (in_awq, AWQ, NEAREST),
    "nf4": (partial(in_nf4, nested=False), NF4_CONFIG, "a rounding of "),
    "nf4-nested": (partial(in_nf4, nested=True), NF4_CONFIG, "a rounding of "),
    "gptq": (partial(in_gptq, version=1), GPTQ, NEAREST),
    "gptq_v2": (partial(in_gptq, version=2), GPTQ | {"checkpoint_format": "gptq_v2"}, NEAREST),
}


def copy_of(folder, tensors, form, config):
    """A copy with its layer matrices in few bits."""
    store, declared, _ = FORMS[form]
    stored = {}
    for name, tensor in tensors.items():
        is_layer = ".layer." in name and tensor.dim() == 2
        stored |= store(name, tensor.float()) if is_layer else {name: tensor}
    make_checkpoint(folder, stored, config=config | {"quantization_config": declared})


def test_a_copy_in_four_bits_names_the_model_that_it_is_a_rounding_of(tmp_path):
    base = make_bert(tmp_path / "base", seed=0, width=64)
    config = read_config(tmp_path / "base")
    tuned = {f"m{seed}": finetune(base, seed=seed, scale=0.02) for seed in range(3)}
    unknown = finetune(base, seed=9, scale=0.02)
    save_models(tmp_path, tuned)
    for form in FORMS:
        copy_of(tmp_path / "models" / f"{form}-m0", tuned["m0"], form, config)
        copy_of(tmp_path / "models" / f"{form}-base", base, form, config)
        copy_of(tmp_path / "later" / f"{form}-m1", tuned["m1"], form, config)
        copy_of(tmp_path / "later" / f"{form}-unknown", unknown, form, config)

    with dx.open(tmp_path / "c.duckdb") as db:
        reports = [
            db.index(str(tmp_path / "base"), tmp_path / folder).to_json()
            for folder in ("models", "later")
        ]

    rows = [row for report in reports for row in report["skipped_models"]]
    reasons = {row["model"]: row["reason"] for row in rows}
    for form, (_, _, said) in FORMS.items():
        assert reasons[f"{form}-m0"].endswith(f"; {said}m0")
        assert reasons[f"{form}-base"].endswith(f"; {said}{tmp_path / 'base'}")
        assert reasons[f"{form}-m1"].endswith(f"; {said}m1")
        assert not form.startswith("nf4") or ";" not in reasons[f"{form}-unknown"]
