"""ΔW of PEFT's methods beside LoRA and its kin, each a function of W, a module's tensors and the
settings, as `merge_and_unload` computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch

from ..errors import ModelError

Parts = Mapping[str, torch.Tensor]
"""A module's tensors by factor, and those that all modules share."""

Value = TypeVar("Value", bool, int, float)


KINDS = {bool: "true or false", int: "a whole number below 2³¹", float: "a number"}


Settings = Mapping[str, object]
"""adapter_config.json."""


def _of(settings: Settings, name: str, kind: type[Value]) -> Value:
    """A value of this kind, one of `KINDS`, that a formula can compute with, or `bad-config`."""
    value = settings.get(name)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or not (kind is float or value >= 0) or not abs(value) < 1 << 31:
        line = f"adapter_config.json: {name} is not {KINDS[kind]}"
        raise ModelError("bad-config", line)
    return value


def oft(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """W·Rᵀ − W, R block-diagonal: Cayley's transform of skew matrices, or the first terms of its
    series."""
    vectors = parts["oft_R"]
    size = round((1 + math.sqrt(1 + 8 * vectors.shape[1])) / 2)
    skew = torch.zeros(len(vectors), size, size)
    rows, columns = torch.triu_indices(size, size, 1)
    skew[:, rows, columns] = vectors
    skew = skew - skew.mT
    if _of(settings, "coft", bool):
        longest = _of(settings, "eps", float) / math.sqrt(len(skew))
        norms = torch.linalg.matrix_norm(skew)[:, None, None]
        skew = torch.where(norms <= longest, skew, longest * skew / norms)
    if _of(settings, "use_cayley_neumann", bool):
        turns = _neumann(skew, _of(settings, "num_cayley_neumann_terms", int))
    else:
        turns = _cayley(skew)
    if _of(settings, "block_share", bool):
        turns = turns.expand(weight.shape[1] // size, size, size)
    return _turn_columns(weight, turns) - weight


def boft(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """diag(s)·W·Rᵀ − W, R a product of butterfly factors: each is block-diagonal once the halves of
    blocks are in another order."""
    moved, width = weight, weight.shape[1]
    for level, block in enumerate(parts["boft_R"]):
        turns = _cayley(0.5 * (block - block.mT))
        halves = torch.arange(width).view(-1, 2**level, 2, block.shape[-1] // 2)
        order = halves.transpose(1, 2).flatten() if level else torch.arange(width)
        moved = _turn_columns(moved[:, order.argsort()], turns)[:, order]
    return moved * parts["boft_s"] - weight


def _cayley(skew: torch.Tensor) -> torch.Tensor:
    one = torch.eye(skew.shape[-1]).expand_as(skew)
    turns: torch.Tensor = torch.linalg.solve(one + skew, one - skew, left=False)
    return turns


def _neumann(skew: torch.Tensor, terms: int) -> torch.Tensor:
    """1 + 2Q + 2Q² + … + Qⁿ: the last term once, where there are more than two."""
    last = max(3, min(terms, 64) - 1) if terms > 2 else terms - 1
    total = power = torch.eye(skew.shape[-1]).expand_as(skew)
    for exponent in range(1, last + 1):
        power = power @ skew
        total = total + power * (1 if exponent == last > 1 else 2)
    return total


def _turn_columns(weight: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """W·Rᵀ for a block-diagonal R, one block for each run of columns."""
    columns = weight.reshape(len(weight), *turns.shape[:2])
    return torch.einsum("onb,ncb->onc", columns, turns).flatten(1)


def hra(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """W times a chain of reflections, less W."""
    normals, moved = parts["hra_u"], weight
    if _of(settings, "apply_GS", bool):
        q: torch.Tensor = torch.linalg.qr(normals).Q
        return -2 * (weight @ q) @ q.T
    for normal in (normals / torch.linalg.vector_norm(normals, dim=0)).T:
        moved = moved - 2 * torch.outer(moved @ normal, normal)
    return moved - weight


def miss(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """One block of r columns, repeated; `bat`: W·B + B in blocks; `mini`: rows are repeated too."""
    block = parts.get("miss_block", parts.get("bone_block"))
    assert block is not None
    out, width = weight.shape
    if block.dim() == 3:
        size = block.shape[-1]
        blocks = weight.reshape(out // size, size, width // size, size).permute(2, 0, 1, 3)
        return (blocks @ block + block).permute(1, 2, 0, 3).reshape(out, width)
    if settings.get("init_weights") == "mini":
        block = block.repeat(1, out // block.shape[1])
    return block.T.repeat(1, -(-width // len(block)))[:, :width]


def c3a(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """Circulant blocks over the number of columns."""
    kernel = parts["c3a_kernel"]
    size = kernel.shape[-1]
    steps = torch.arange(size)
    circulant = kernel[:, :, (steps - steps[:, None]) % size]
    return circulant.permute(0, 2, 1, 3).flatten(2).flatten(0, 1) / weight.shape[1]


def hira(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    return weight * (parts["hira_B"] @ parts["hira_A"])


def road(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """R·W − W: pairs of rows in a group are turned and stretched."""
    half, variant = _of(settings, "group_size", int) // 2, settings.get("variant")
    theta, alpha = parts["road_theta"], parts["road_alpha"]
    if variant == "road_1":
        theta, alpha = (
            v.reshape(-1, half).repeat_interleave(2, dim=0).flatten() for v in (theta, alpha)
        )
    pair = (theta, theta), (alpha, alpha)
    if variant == "road_4":
        split = (v.reshape(-1, 2, 2 * half) for v in (theta, alpha))
        pair = tuple((v[:, 0].flatten(), v[:, 1].flatten()) for v in split)  # type: ignore[assignment]
    elif variant not in ("road_1", "road_2"):
        raise ModelError("bad-config", "adapter_config.json: variant is not road_1, 2 or 4")
    (cos_of, sin_of), (first, second) = pair
    grouped = weight.reshape(-1, 2, half, weight.shape[1])
    turned = torch.stack((-grouped[:, 1], grouped[:, 0]), dim=1).reshape(weight.shape)
    moved = weight * (first * cos_of.cos())[:, None] + turned * (second * sin_of.sin())[:, None]
    return moved - weight


def shira(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    rows, columns = parts["shira_indices"].long()
    change = torch.zeros_like(weight)
    return change.index_put((rows, columns), parts["shira_weight"], accumulate=True)


def fourierft(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """The real part of an inverse Fourier transform; its frequencies follow from a seed."""
    spectrum = parts["fourierft_spectrum"]
    seed = torch.Generator().manual_seed(_of(settings, "random_loc_seed", int))
    chosen = torch.randperm(weight.numel(), generator=seed)[: len(spectrum)]
    dense = torch.zeros(weight.numel())
    dense[chosen] = spectrum
    waves: torch.Tensor = torch.fft.ifft2(dense.view_as(weight)).real
    return waves * _of(settings, "scaling", float)


def randlora(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """Random bases that all modules share, scaled by two small matrices."""
    scales, gamma = parts["randlora_lambda"], parts["randlora_gamma"]
    small, large = sorted(weight.shape)
    rank, n_bases = scales.shape
    right = parts["randlora_A"][:, :n_bases, :small] * scales[:, :, None] * gamma
    left = parts["randlora_B"][:large, :n_bases].flatten(1)
    product = left @ right.flatten(0, 1) * (_of(settings, "randlora_alpha", float) / rank)
    return product if weight.shape[1] == small else product.T


def delora(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    a, b = parts["delora_A"], parts["delora_B"]
    rows: torch.Tensor = torch.linalg.vector_norm(a, dim=1)
    columns: torch.Tensor = torch.linalg.vector_norm(b, dim=0)
    lengths = rows.clamp(min=1e-4) * columns.clamp(min=1e-4)
    return (b * (parts["delora_lambda"] / len(a) / lengths)) @ a * parts["delora_w_norm"]


def gralora(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """LoRA in a grid of blocks, k by k, and one over all of it."""
    a, b = parts["gralora_A"], parts["gralora_B"]
    k, width, rank = a.shape
    blocks = torch.einsum(
        "nijs,jnso->joni", a.view(k, width, k, rank // k), b.view(k, k, rank // k, -1)
    )
    change = blocks.reshape(weight.shape)
    hybrid = parts.get("gralora_A_general")
    if hybrid is not None:
        change = change + parts["gralora_B_general"] @ hybrid
        rank += len(hybrid)
    return change * (_of(settings, "alpha", float) / rank)


def vblora(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """B·A, made of vectors of a bank that all modules share; which, and how much of each, follows
    from logits, or is stored for the largest ones, less the last share."""
    n_chosen = _of(settings, "topk", int)

    def mixed(side: str) -> torch.Tensor:
        logits = parts.get(f"vblora_logits_{side}")
        if logits is None:
            first = parts[f"vblora_logits_{side}_topk_weights"]
            shares = torch.cat((first, 1 - first.sum(-1, keepdim=True)), dim=-1)
            indices = parts[f"vblora_logits_{side}_topk_indices"].long()
        else:
            best, indices = logits.topk(n_chosen, dim=-1)
            shares = best.softmax(dim=-1)
        return (shares.unsqueeze(-1) * parts["vblora_vector_bank"][indices]).sum(-2)

    return mixed("B").transpose(1, 2).flatten(0, 1) @ mixed("A").flatten(1)


def pvera(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """VeRA at the mean of its distribution, the first half of the diagonal."""
    out, width = weight.shape
    d, a, b = parts["pvera_lambda_d"], parts["pvera_A"], parts["pvera_B"][:out]
    a = d[: len(d) // 2, None] * a[: len(a) // 2, :width]
    return (parts["pvera_lambda_b"][:, None] * b) @ a


def glora(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """W∘A + B, each a product of factors, a number for each row, one number, or nothing."""

    def path(name: str) -> torch.Tensor:
        if f"{name}_Xd" in parts:
            left, right = parts[f"{name}_Xd"], parts[f"{name}_Xu"]
            if (len(left), right.shape[1]) != weight.shape:
                raise ValueError
            return left @ right
        return parts.get(f"{name}_X", torch.zeros(()))

    return weight * path("glora_A") + path("glora_B")


def psoft(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """The first singular triplets of W, turned against one another, less themselves."""
    if settings.get("psoft_svd") != "full":
        line = "PSOFT on a random projection of W (psoft_svd), which is not stored"
        raise ModelError("unsupported-adapter", line)
    turn, rank = parts["psoft_R"], _of(settings, "r", int)
    if rank > min(weight.shape):
        raise ValueError
    if _of(settings, "psoft_orth", bool):
        skew = torch.zeros(rank, rank)
        skew[*torch.triu_indices(rank, rank, 1)] = turn
        turn = _psoft_turn(skew - skew.T, settings)
    turn = parts.get("psoft_R_vector_b", torch.ones(rank))[:, None] * turn
    turn = turn * parts.get("psoft_R_vector_a", torch.ones(rank))
    u, sigma, v = torch.linalg.svd(weight, full_matrices=False)
    left, right, sigma = u[:, :rank], v[:rank], sigma[:rank]
    change: torch.Tensor = turn - torch.eye(rank)
    if settings.get("ab_svd_init") == "pissa_init":
        change = sigma.sqrt()[:, None] * change * sigma.sqrt()
    else:
        change = sigma[:, None] * change
    moved: torch.Tensor = left @ change @ right
    return moved


def _psoft_turn(skew: torch.Tensor, settings: Settings) -> torch.Tensor:
    if not _of(settings, "use_cayley_neumann", bool):
        return _cayley(-skew)
    norm = torch.linalg.matrix_norm(skew)
    if settings.get("cayley_neumann_eps") is not None:
        longest = _of(settings, "cayley_neumann_eps", float)
        skew = skew * (longest / norm) if norm > longest else skew
    return _neumann(skew, _of(settings, "num_cayley_neumann_terms", int))


def waveft(weight: torch.Tensor, parts: Parts, settings: Settings) -> torch.Tensor:
    """Some wavelet coefficients, whose places follow from a seed, transformed back (Haar)."""
    (out, width), spectrum = weight.shape, parts["waveft_spectrum"]
    seed = torch.Generator().manual_seed(_of(settings, "random_loc_seed", int))
    chosen = torch.randperm(weight.numel(), generator=seed)[: len(spectrum)]
    dense = torch.zeros(out + out % 2, width + width % 2)
    dense[chosen // width, chosen % width] = spectrum
    if _of(settings, "use_idwt", bool):
        if settings.get("wavelet_family") != "db1":
            line = "WaveFT with another wavelet than Haar's (db1), which is not computed"
            raise ModelError("unsupported-adapter", line)
        (a, h), (v, d) = ((half.chunk(2, 1)) for half in dense.chunk(2))
        rows = [
            torch.stack((a + h + v + d, a + h - v - d), dim=-1).flatten(1),
            torch.stack((a - h + v - d, a - h - v + d), dim=-1).flatten(1),
        ]
        dense = torch.stack(rows, dim=1).flatten(0, 1) / 2
    return dense[:out, :width] * _of(settings, "scaling", float)


@dataclass(frozen=True, slots=True)
class Method:
    """A formula, the factors that a module must have, and those that are stored once for all."""

    change: Callable[[torch.Tensor, Parts, Settings], torch.Tensor]
    factors: tuple[str, ...]
    shared: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


METHODS = {
    "oft": Method(oft, ("oft_R",)),
    "boft": Method(boft, ("boft_R", "boft_s")),
    "hra": Method(hra, ("hra_u",)),
    "miss": Method(miss, ("miss_block",)),
    "bone": Method(miss, ("bone_block",)),
    "c3a": Method(c3a, ("c3a_kernel",)),
    "hira": Method(hira, ("hira_A", "hira_B")),
    "road": Method(road, ("road_theta", "road_alpha")),
    "shira": Method(shira, ("shira_weight", "shira_indices")),
    "fourierft": Method(fourierft, ("fourierft_spectrum",)),
    "randlora": Method(
        randlora, ("randlora_lambda", "randlora_gamma"), ("randlora_A", "randlora_B")
    ),
    "delora": Method(delora, ("delora_A", "delora_B", "delora_lambda", "delora_w_norm")),
    "gralora": Method(
        gralora, ("gralora_A", "gralora_B"), (), ("gralora_A_general", "gralora_B_general")
    ),
    "vblora": Method(
        vblora,
        (),
        ("vblora_vector_bank",),
        tuple(
            f"vblora_logits_{s}{e}" for s in "AB" for e in ("", "_topk_weights", "_topk_indices")
        ),
    ),
    "glora": Method(
        glora, (), (), tuple(f"glora_{p}_{x}" for p in "ABCDE" for x in ("X", "Xd", "Xu", "zeros"))
    ),
    "psoft": Method(psoft, ("psoft_R",), (), ("psoft_R_vector_a", "psoft_R_vector_b")),
    "waveft": Method(waveft, ("waveft_spectrum",)),
    "pvera": Method(pvera, ("pvera_lambda_b", "pvera_lambda_d"), ("pvera_A", "pvera_B")),
}
"""By the name that `peft_type` has in lower case, with which each factor's name begins."""
