"""A walk of a tensor: from two safetensors files to a fingerprint, all in memory.

`python docs/walk_tensor.py BASE.safetensors TUNED.safetensors`, BERT's names, float32. The package
streams the same from any architecture, storage and adapter; `tests/test_walks.py` holds both equal.
"""

import hashlib
import re
import sys

import numpy as np
from safetensors.numpy import load_file

ROLES = {
    **{f"attention.self.{name}": name[0] for name in ("query", "key", "value")},
    **{"attention.output.dense": "o", "intermediate.dense": "up", "output.dense": "down"},
}
BLOCKS = {  # by what is sketched: (sides, σ to the power, weight, buckets drawn, numbers kept)
    "update": ("uv", 1.0, 1.0, 1024, 512),
    "output": ("uu", 0.5, 2.0, 2048, 1024),
    "input": ("vv", 2.0, 2.0, 1024, 512),
}
RANK, EXTRA, ROUNDING = 16, 8, 2.0**-24 / 3**0.5 * 0.735


def updates(base, tuned):
    """ΔW of each slot, `encoder.0.q`, and the length of what float32 rounded away of it."""
    for name, weight in sorted(load_file(base).items()):
        found = re.search(r"encoder\.layer\.(\d+)\.(.+)\.weight$", name)
        if found and found[2] in ROLES:
            slot = f"encoder.{found[1]}.{ROLES[found[2]]}"
            yield slot, load_file(tuned)[name] - weight, ROUNDING * np.linalg.norm(weight)


def factors(delta, noise):
    """Leading singular triplets by a randomised SVD (Halko et al. 2011), above the noise."""
    import torch  # its random numbers are part of the recipe

    width = min(RANK + EXTRA, *delta.shape)
    test = torch.randn(width, delta.shape[1], generator=torch.Generator().manual_seed(0)).numpy()
    basis, _ = np.linalg.qr(delta.astype(np.float64) @ test.T)
    u, sigma, vt = np.linalg.svd(basis.T @ delta, full_matrices=False)
    largest_noise = noise * sum(np.sqrt(delta.shape)) / np.sqrt(delta.size)
    n = min(RANK, int((sigma > max(largest_noise, 1e-6 * sigma[0])).sum()))
    return {"u": basis @ u[:, :n], "v": vt[:n].T}, sigma[:n]


def count_sketch(rows, key, drawn, kept):
    """Σ of signed rows in random buckets: inner products stay, in expectation."""
    digest = hashlib.sha256(f"0/{key}/{len(rows)}/{drawn}".encode()).digest()
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    buckets = draw.integers(0, drawn, size=len(rows), dtype=np.int64) % kept
    signs = draw.integers(0, 2, size=len(rows), dtype=np.int8) * 2.0 - 1.0
    sketch = np.zeros((kept, rows.shape[1]))
    np.add.at(sketch, buckets, rows * signs[:, None])
    return sketch


def sketches(base, tuned):
    """By slot: each block's numbers, TensorSketches of Σ σᵖ a bᵀ, and what they count; the share of
    the update that is no rounding."""
    for slot, delta, noise in updates(base, tuned):
        sides, sigma = factors(delta, noise)
        total = (delta.astype(np.float64) ** 2).sum()
        signal, numbers, scales = max(0.0, 1 - noise**2 / total), [], []
        left_out = max(0.1, 1 - min(1.0, (sigma**2).sum() / (total * signal)))
        for block, (names, power, weight, drawn, kept) in BLOCKS.items():
            one, other = (
                np.fft.rfft(
                    count_sketch(sides[side], f"{slot}//{block}/{end}", drawn, kept), axis=0
                )
                for side, end in zip(names, "ab", strict=True)
            )
            numbers.append(np.fft.irfft((one * other) @ sigma**power, n=kept))
            weight *= signal * (left_out if block == "input" else 1.0)
            scales.append(np.sqrt(weight / (sigma ** (2 * power)).sum()))
        yield slot, numbers, scales, signal


def fingerprint(base, tuned):
    """2,048 numbers of length 1: the slots' blocks, added up."""
    blocks = [np.zeros(kept) for *_, kept in BLOCKS.values()]
    for _, numbers, scales, _ in sketches(base, tuned):
        for block, (mine, scale) in enumerate(zip(numbers, scales, strict=True)):
            blocks[block] += scale * mine
    vector = np.concatenate(blocks)
    return vector / np.linalg.norm(vector)


if __name__ == "__main__":
    print(*fingerprint(*sys.argv[1:3])[:8].round(4), "…")
