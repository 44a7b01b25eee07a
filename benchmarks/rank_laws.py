"""How often `rank` finds a law where there is none, and where there is one.

    python benchmarks/rank_laws.py [--curves 100] [--layers 6 12 24] [--db CATALOG] [--seed 0]

False laws: curves whose layers are permuted, so that rank does not depend on depth, and curves
that drift from layer to layer without a law. Power: laws planted under noise and rounded to whole
numbers, and how many intervals of value ± t·s.e. hold the planted value. With a catalog, also the
curves of its stored rank studies, each permuted.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import deltadex
from deltadex.arrays import Float64
from deltadex.study.rank import fit_laws
from deltadex.study.rank.law_choice import LawChoice
from deltadex.study.rank.laws import LAW_NAMED

Curve = Float64[np.ndarray, " depth"]
NO_LAW = ("constant", "no pattern", "depends on depth, no law")
PLANTED = {
    "linear": (60.0, -50.0),
    "exponential": (5.0, 60.0, 3.0),
    "power": (5.0, 60.0, -1.0),
    "step": (20.0, -16.0, 3.0),
    "logistic drop": (10.0, 50.0, 0.6, 0.08),
}
NOISE = (0.02, 0.05, 0.1)
"""Standard deviations, as shares of a planted law's range."""
MODELS = 8
"""Of a made family."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Curves without a law: from a generator and a depth to ranks, and s.e. of a family's."""

    name: str
    draw: Callable[[np.random.Generator, int], tuple[Curve, Curve | None]]


def planted(law: str, n_layers: int) -> Curve:
    """The law's values by layer."""
    layers = np.arange(1.0, n_layers + 1.0)
    values: Curve = LAW_NAMED[law].values(PLANTED[law], layers, n_layers)
    return values


def noisy(rng: np.random.Generator, curve: Curve, share: float) -> Curve:
    """Whole ranks of at least 1, with noise of a share of the curve's range."""
    noise = share * float(np.ptp(curve)) * rng.normal(size=len(curve))
    ranks: Curve = np.maximum(np.round(curve + noise), 1.0)
    return ranks


def of_one(law: str) -> Kind:
    return Kind(
        f"{law}, permuted",
        lambda rng, n: (rng.permutation(noisy(rng, planted(law, n), 0.05)), None),
    )


def family(rng: np.random.Generator, n_layers: int) -> tuple[Curve, Curve | None]:
    """Means of models whose ranks scatter by a tenth of each rank; permuted with their s.e."""
    curve = planted("exponential", n_layers)
    ranks = np.round(curve + 0.1 * curve * rng.normal(size=(MODELS, n_layers)))
    order = rng.permutation(n_layers)
    errors = ranks.std(axis=0, ddof=1) / np.sqrt(MODELS)
    return ranks.mean(axis=0)[order], errors[order]


def walk(rng: np.random.Generator, steps: Curve) -> tuple[Curve, None]:
    """Whole ranks whose steps these are, with a spread of one to four ranks."""
    return np.maximum(np.round(40.0 + rng.uniform(1.0, 4.0) * np.cumsum(steps)), 1.0), None


KINDS = (
    of_one("linear"),
    of_one("exponential"),
    Kind("normal noise", lambda rng, n: (np.round(20.0 + 3.0 * rng.normal(size=n)), None)),
    Kind("ranks 1 to 3", lambda rng, n: (rng.integers(1, 4, n).astype(float), None)),
    Kind("heavy tails", lambda rng, n: (np.ceil(rng.pareto(1.5, n) * 5.0), None)),
    Kind(f"means of {MODELS} models, permuted", family),
    Kind("constant 20 ± 1", lambda rng, n: (np.round(20.0 + rng.normal(size=n)), None)),
    Kind("random walk", lambda rng, n: walk(rng, rng.normal(size=n))),
    Kind("random walk, heavy tails", lambda rng, n: walk(rng, rng.standard_t(3, size=n))),
    Kind("sum of a random walk", lambda rng, n: walk(rng, np.cumsum(rng.normal(size=n)))),
)


def fitted(ranks: Curve, errors: Curve | None = None) -> LawChoice:
    n = len(ranks)
    counts = None if errors is None else np.full(n, MODELS)
    return fit_laws(np.arange(1, n + 1), ranks, n, standard_errors=errors, counts=counts)


def stored_curves(catalog: Path) -> Iterator[Curve]:
    """Ranks by depth of every rank study of a catalog; each curve once."""
    seen = set()
    with deltadex.open(catalog, read_only=True) as db:
        for row in db.sql("SELECT results FROM study_results WHERE study = 'rank'"):
            for curve in json.loads(str(row["results"]))["curves"]:
                ranks = tuple(p["rank"] for p in curve["points"] if p["valid"] and p["rank"] > 0)
                if len(ranks) >= 5 and ranks not in seen:
                    seen.add(ranks)
                    yield np.array(ranks)


def print_false_laws(
    rng: np.random.Generator, layers: list[int], n_curves: int, catalog: Path | None
) -> None:
    print(f"| curves without a law | layers | curves | laws found | steps | {' | '.join(NO_LAW)} |")
    print("| --- |" + " ---: |" * (4 + len(NO_LAW)))

    def show(name: str, depth: int | str, choices: list[LawChoice]) -> None:
        found = Counter(choice.verdict for choice in choices)
        steps = sum(n for verdict, n in found.items() if verdict.startswith("step"))
        none = [found[verdict] for verdict in NO_LAW]
        rates = [n / len(choices) for n in (len(choices) - sum(none) - steps, steps, *none)]
        shown = " | ".join(f"{rate:.0%}" for rate in rates)
        print(f"| {name} | {depth} | {len(choices)} | {shown} |", flush=True)

    for kind in KINDS:
        for n in layers:
            show(kind.name, n, [fitted(*kind.draw(rng, n)) for _ in range(n_curves)])
    curves = list(stored_curves(catalog)) if catalog else []
    if curves:
        draws = -(-n_curves // len(curves))
        depths = "…".join(map(str, sorted({min(map(len, curves)), max(map(len, curves))})))
        some = [fitted(rng.permutation(curve)) for curve in curves for _ in range(draws)]
        show("of the catalog, permuted", depths, some)


def print_power(rng: np.random.Generator, layers: list[int], n_curves: int) -> None:
    print("| planted | layers | noise / range | a law | that law | R² | in its 95 % interval |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for law in PLANTED:
        for n in layers:
            if LAW_NAMED[law].fewest_points > n:
                continue
            for share in NOISE:
                choices = [fitted(noisy(rng, planted(law, n), share)) for _ in range(n_curves)]
                some = [choice for choice in choices if choice.verdict not in NO_LAW]
                name = f"step at layer {PLANTED[law][-1]:.0f}" if law == "step" else law
                right = [choice for choice in some if choice.verdict == name]
                quality = np.mean([c.best.r_squared for c in some if c.best]) if some else np.nan
                print(
                    f"| {law} | {n} | {share:g} | {len(some) / n_curves:.0%} "
                    f"| {len(right) / n_curves:.0%} | {quality:.2f} | {covered(choices, law)} |",
                    flush=True,
                )


def covered(choices: list[LawChoice], law: str) -> str:
    """Share of the fits whose 95 % interval holds the planted value: the parameter with the least.

    Of every fit of that law with standard errors, whether it was chosen or not: a choice would
    select for it.
    """
    from scipy.stats import t

    inside = []
    for choice in choices:
        [found] = [c for c in choice.candidates if c.law == law]
        width = t.isf(0.025, choice.points - len(found.parameters))
        pairs = zip(found.parameters.values(), PLANTED[law], strict=True)
        row = [
            abs(p.value - true) <= width * p.standard_error for p, true in pairs if p.standard_error
        ]
        if row:
            inside.append(row)
    return f"{np.mean(inside, axis=0).min():.0%} of {len(inside)}" if inside else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=100, help="Curves of each row.")
    parser.add_argument("--layers", type=int, nargs="+", default=[6, 12, 24])
    parser.add_argument("--db", type=Path, help="A catalog with stored rank studies.")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    print_false_laws(rng, args.layers, args.curves, args.db)
    print()
    print_power(rng, args.layers, args.curves)


if __name__ == "__main__":
    main()
