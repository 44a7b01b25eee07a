"""A walk of a query: from the sketches of a family's fine-tunes to the nearest models and their z.

`python docs/walk_query.py BASE.safetensors TUNED.safetensors …` ranks the models by the first; of
eight or more full fine-tunes without copies and footprints. `tests/test_walks.py` holds the numbers
equal to those of `find-similar`.
"""

import sys

import numpy as np
from walk_tensor import sketches

SHARES = np.array([1.0, 1.0, 3.0]) / 5  # of update, output and input between full fine-tunes


def two_bits(numbers):
    """−3, −1, 1 or 3 of each number (Max 1960), to unit length."""
    is_large = np.abs(numbers) > 0.9957 * np.sqrt((numbers**2).mean())
    levels = np.where(numbers > 0, 1, -1) * np.where(is_large, 3, 1)
    return levels / np.linalg.norm(levels)


def codes(base, tuned):
    """What is stored of a model: by slot, each block times what the slot counts."""
    found = {s: (np.float16(signal**0.5), b) for s, b, _, signal in sketches(base, tuned)}
    length = np.sqrt(sum(float(counts) ** 2 for counts, _ in found.values()))
    return {
        slot: [float(counts) / length * two_bits(block) for block in blocks]
        for slot, (counts, blocks) in found.items()
    }


def cosines(models):
    """Of every pair, block by block: the mean over slots."""
    return np.array(
        [
            [[sum(a[s][b] @ c[s][b] for s in a if s in c) for c in models] for a in models]
            for b in range(len(SHARES))
        ]
    )


def whitened(cosine):
    """What two models have in common beyond what all others explain of either."""
    n, found = len(cosine), np.zeros_like(cosine)
    for i in range(n):
        for j in range(i):
            pair, rest = [i, j], [k for k in range(n) if k not in (i, j)]
            known = cosine[np.ix_(rest, rest)] + 0.5 * np.eye(n - 2)
            explained = cosine[np.ix_(pair, rest)] @ np.linalg.solve(
                known, cosine[np.ix_(rest, pair)]
            )
            left = cosine[np.ix_(pair, pair)] - explained
            found[i, j] = found[j, i] = left[0, 1] / np.sqrt(
                np.maximum(left.diagonal(), 0.02).prod()
            )
    return found.clip(-1, 1)


def normalised(values, others):
    """z of each pair among the strangers of either model: s-norm (Auckenthaler et al. 2000)."""
    rows = [values[i, others[i]] for i in range(len(values))]
    z = (values - np.median(rows, axis=1)[:, None]) / np.maximum(np.std(rows, axis=1), 1e-4)[
        :, None
    ]
    return (z + z.T) / 2


def correlation(scores, others):
    """Whether two models are near the same third ones."""
    profile = np.where(others, scores - scores.mean(axis=1, where=others)[:, None], 0.0)
    squares = profile**2 @ others.T.astype(float)
    return profile @ profile.T / np.sqrt(squares * squares.T)


def z_scores(models):
    """Standard deviations above the family's strangers, of every pair."""
    n, others = len(models), ~np.eye(len(models), dtype=bool)
    white = [whitened(block) for block in cosines(models)]
    first = sum(share * normalised(w, others) for share, w in zip(SHARES, white, strict=True))
    whole = sum(share * w for share, w in zip(SHARES, white, strict=True))
    total = np.zeros((n, n))
    parts = (first, 1.0), (correlation(first, others), 2 * n / (n + 30)), (whole, 20 / n)
    for part, counts in parts:
        total += counts * (part - np.median(part[others])) / part[others].std()
    low, middle = np.quantile(total[others], [0.158655, 0.5])
    return (total - middle) / (middle - low)


if __name__ == "__main__":
    base, *tuned = sys.argv[1:]
    z = z_scores([codes(base, path) for path in tuned])[0]
    for place in sorted(range(1, len(tuned)), key=lambda i: -z[i]):
        print(f"{z[place]:6.1f}  {tuned[place]}")
