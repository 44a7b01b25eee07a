"""How many edges of lineages are right, on trees whose descent is known.

    python -m benchmarks.provenance.lineage build OUT --texts FOLDER [--shape wide] [--seed 101]
    python -m benchmarks.provenance.lineage small OUT --texts FOLDER --seeds 1000 1040
    python -m benchmarks.provenance.lineage score OUT...
    python -m benchmarks.provenance.lineage fit OUT...

`build` trains trees of real fine-tunes of all-MiniLM-L6-v2 and indexes them, `small` trees of a
small network in memory; `score` compares the lineage with what is known, with times and without,
beside two rivals on the same sketches: the minimum spanning tree of distances, whose edges lead
away from the base, and Edmonds' tree of distances with the direction from the shorter update to the
longer one, as MoTHer has it from another measure of training. `fit` writes the weights of
`provenance/lineage/odds.json` anew. A model counts as right if all its parents are, and no other is
named; of two equal models either may be the parent, and without times either may be the copy.
"""

from __future__ import annotations

import argparse
import json
import pickle
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import deltadex as dx
from deltadex.provenance.lineage import descent
from deltadex.provenance.lineage.descent import (
    FITTED,
    Neighbourhood,
    Updates,
    compare_pairs,
    features_of,
    find_near,
)
from deltadex.provenance.lineage.edges import BASE, Edge, best_arborescence, infer_edges
from deltadex.provenance.lineage.forms import Forms, TouchedTokens
from deltadex.provenance.lineage.lineage import choose_linear_recipe
from deltadex.provenance.lineage.repeats import find_repeat

COPIES = ("copy", "bfloat16", "int8")
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Models in order of row, with the rows of their parents, what they are, and when; with their
    footprints, where the catalog has them."""

    name: str
    updates: Updates
    parents: list[set[int]]
    kinds: list[str]
    times: np.ndarray
    touched: TouchedTokens

    def originals(self) -> list[int]:
        """The model that each is an equal copy of, or itself."""
        return [
            min(above) if kind == "copy" else row
            for row, (above, kind) in enumerate(zip(self.parents, self.kinds, strict=True))
        ]


def read_tree(path: Path) -> Tree:
    if path.suffix == ".pkl":
        small = pickle.loads(path.read_bytes())
        nodes = [
            {name: getattr(node, name) for name in ("name", "parents", "form", "decoy_of")}
            for node in small.nodes
        ]
        ids, unknown = [node["name"] for node in nodes], TouchedTokens.unknown(len(nodes))
        return _tree(path.stem, ids, small.updates, nodes, unknown)
    nodes = json.loads((path / "truth.json").read_text())
    with dx.open(path / "catalog.duckdb", read_only=True) as db:
        catalog, base = db._catalog, db.bases[0]
        view = catalog.family(base, choose_linear_recipe(catalog, base, None), is_current=True)
        updates, ids = Updates.of_family(view.updates()), list(view.ids)
        records = {row.id: row for row in catalog.models(base=base)}
        members = [records[id] for id in ids]
        touched = TouchedTokens.of_family(catalog, base, members, updates.rounding)
        return _tree(path.name, ids, updates, nodes, touched)


def _tree(
    name: str,
    ids: Sequence[str],
    updates: Updates,
    nodes: Sequence[Mapping[str, Any]],
    touched: TouchedTokens,
) -> Tree:
    row_of = {id: row for row, id in enumerate(ids)}
    made = {node["name"]: at for at, node in enumerate(nodes)}
    known = [nodes[made[id]] for id in ids]
    decoyed = {node["decoy_of"] for node in nodes if node["decoy_of"]}
    return Tree(
        name,
        updates,
        [{row_of[parent] for parent in node["parents"]} for node in known],
        [
            "decoy"
            if node["form"] == "full" and (node["decoy_of"] or node["name"] in decoyed)
            else str(node["form"])
            for node in known
        ],
        np.array([DAY_S * made[id] for id in ids]),
        touched,
    )


Method = Callable[[Updates, np.ndarray, TouchedTokens], list[Edge]]


def ours(updates: Updates, times: np.ndarray, touched: TouchedTokens) -> list[Edge]:
    rank = np.argsort(np.argsort(np.nan_to_num(times), kind="stable"), kind="stable")
    return infer_edges(updates, times, rank, replace(Forms.unknown(len(updates)), touched=touched))


def without_footprints(updates: Updates, times: np.ndarray, touched: TouchedTokens) -> list[Edge]:
    return ours(updates, times, TouchedTokens.unknown(len(updates)))


def spanning_tree(updates: Updates, times: np.ndarray, touched: TouchedTokens) -> list[Edge]:
    """Prim's tree of the distances of all models and the base, from the base."""
    distances = _distances(updates)
    n_models = len(distances) - 1
    nearest, parents = distances[n_models].copy(), np.full(n_models + 1, n_models)
    is_done = np.zeros(n_models + 1, dtype=bool)
    is_done[n_models] = True
    for _ in range(n_models):
        new = int(np.where(is_done, np.inf, nearest).argmin())
        is_done[new] = True
        closer = ~is_done & (distances[new] < nearest)
        nearest[closer], parents[closer] = distances[new][closer], new
    return _as_edges(parents[:-1], n_models)


def norms_directed(updates: Updates, times: np.ndarray, touched: TouchedTokens) -> list[Edge]:
    """Edmonds' tree of least distances; no edge leads from a longer update to a shorter one."""
    distances = _distances(updates)
    n_models = len(distances) - 1
    norms = np.append(updates.squares.sum(1), 0.0)
    tails, heads = np.nonzero(norms[:, None] < norms)
    weights = -distances[tails, heads]
    has_edge = np.isin(np.arange(n_models), heads)
    assert has_edge.all()
    best = best_arborescence(tails, heads, weights, n_models)
    return _as_edges(tails[best], n_models)


def _distances(updates: Updates) -> np.ndarray:
    """|ΔW − ΔW'|², the base last."""
    sketches = updates.layers.reshape(len(updates), -1).astype(np.float64)
    sketches = np.vstack([sketches, np.zeros_like(sketches[:1])])
    squares = (sketches**2).sum(1)
    return np.maximum(squares[:, None] + squares - 2 * sketches @ sketches.T, 0.0)


def _as_edges(parents: np.ndarray, n_models: int) -> list[Edge]:
    return [
        Edge(parent=BASE if parent == n_models else parent, child=child, probability=1.0)
        for child, parent in enumerate(parents.tolist())
    ]


METHODS: dict[str, Method] = {
    "deltadex": ours,
    "without footprints": without_footprints,
    "spanning tree": spanning_tree,
    "directed by norm": norms_directed,
}


def outcomes(tree: Tree, edges: Sequence[Edge], *, dated: bool) -> Iterator[dict[str, Any]]:
    """For each model whether its parents are right, with the probability that was given."""
    same = tree.originals()
    given: dict[int, list[Edge]] = {}
    for edge in edges:
        given.setdefault(edge.child, []).append(edge)
    for row, above in enumerate(tree.parents):
        truth = {same[parent] for parent in above} or {BASE}
        answer = {BASE if e.parent == BASE else same[e.parent] for e in given[row]}
        if tree.kinds[row] == "copy" and not dated:
            continue
        if tree.kinds[row] != "copy" and answer == {same[row]}:
            # the copy was taken for the original: then the copy's own edge is the model's
            copies = [at for at, original in enumerate(same) if original == row and at != row]
            answer = {BASE if e.parent == BASE else same[e.parent] for e in given[copies[0]]}
        yield {
            "tree": tree.name,
            "row": row,
            "kind": tree.kinds[row] if above else "of the base",
            "right": answer == truth,
            "named": answer != {BASE},
            "has parent": truth != {BASE},
            "probability": min(e.probability for e in given[row]),
            "given": given[row][0].kind,
        }


def score(trees: Sequence[Tree]) -> None:
    for dated in (True, False):
        print(f"\n{'with' if dated else 'without'} times, {len(trees)} trees")
        for name, method in METHODS.items():
            rows = []
            for tree in trees:
                times = tree.times if dated else np.full(len(tree.times), np.nan)
                rows += outcomes(tree, method(tree.updates, times, tree.touched), dated=dated)
            print_rows(name, rows)
            if name == "deltadex":
                print_reliability(rows)


def print_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    def mean(chosen: Sequence[Mapping[str, Any]]) -> str:
        return f"{np.mean([row['right'] for row in chosen]):.3f}" if chosen else "–"

    named = [row for row in rows if row["named"]]
    below = [row for row in rows if row["has parent"]]
    print(
        f"{name}: right {mean(rows)} of {len(rows)}; of named parents {mean(named)} "
        f"({len(named)}); named where there is one "
        f"{np.mean([row['named'] for row in below]):.3f}"
    )
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    print("   " + ", ".join(f"{k} {mean(v)} ({len(v)})" for k, v in sorted(by_kind.items())))
    if name in ("deltadex", "without footprints"):
        wrong = [f"{row['tree']}:{row['row']}" for row in rows if not row["right"]]
        print("   wrong: " + " ".join(wrong))


def print_reliability(rows: Sequence[Mapping[str, Any]]) -> None:
    chosen = [row for row in rows if row["given"] == "fine-tune"]
    given = np.array([row["probability"] for row in chosen])
    right = np.array([row["right"] for row in chosen])
    brier = float(((given - right) ** 2).mean())
    cells = []
    for low, high in ((0, 0.6), (0.6, 0.8), (0.8, 0.9), (0.9, 0.97), (0.97, 1.01)):
        inside = (given >= low) & (given < high)
        if inside.any():
            cells.append(f"{given[inside].mean():.2f}→{right[inside].mean():.2f} ({inside.sum()})")
    print(f"   probability → share right: {', '.join(cells)}; Brier {brier:.3f}")
    for kind in ("merge", "quantised", "duplicate"):
        own = [row["right"] for row in rows if row["given"] == kind]
        if own:
            print(f"   {kind}: {np.mean(own):.3f} right of {len(own)}")


RIDGE = 2.0
"""Of the squared weights of features, each in units of its standard deviation."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A model with its candidates: features, and which is the parent; 0 is the base."""

    tree: str
    features: dict[str, np.ndarray]
    parent: int


def read_choices(tree: Tree) -> Iterator[Choice]:
    """Every model but those that repeat others; copies are no candidates."""
    keep = np.array([row for row, kind in enumerate(tree.kinds) if kind != "copy"])
    same = tree.originals()
    updates = tree.updates.take(keep)
    near = find_near(updates)
    around = [np.append(row, near[row]) for row in range(len(keep))]
    repeats = {}
    for row, rows in enumerate(around):
        if (repeat := find_repeat(Neighbourhood.of(updates.take(rows), rows))) is not None:
            repeats[row] = repeat
    is_reference = ~np.isin(np.arange(len(keep)), list(repeats))
    for row, rows in enumerate(around):
        if row in repeats or tree.kinds[keep[row]] == "merge":
            continue
        pairs = compare_pairs(Neighbourhood.of(updates.take(rows), rows), is_reference[rows])
        above = {same[parent] for parent in tree.parents[keep[row]]}
        made_of_it = [at in repeats and row in repeats[at].parents for at in near[row].tolist()]
        places = [
            at
            for at, own in enumerate(keep[near[row]].tolist())
            if own in above and not made_of_it[at]
        ]
        if above and not places:
            continue  # the parent is no candidate
        numbers = features_of(pairs, np.ones(len(near[row]), dtype=np.bool_))
        kept = np.flatnonzero(~np.array(made_of_it))
        chosen = {name: values[kept] for name, values in numbers.items()}
        parent = 1 + int(np.flatnonzero(kept == places[0])[0]) if places else 0
        yield Choice(tree.name, chosen, parent)


def fit_weights(choices: Sequence[Choice]) -> dict[str, float]:
    """The weights of the greatest likelihood, with a ridge."""
    import torch

    names = list(choices[0].features)
    tables = [np.stack([choice.features[name] for name in names], 1) for choice in choices]
    scale = np.concatenate(tables).std(0) + 1e-3
    scale[0] = 1.0
    longest = max(map(len, tables))
    padded = torch.zeros(len(tables), longest + 1, len(names), dtype=torch.float64)
    is_there = torch.zeros(len(tables), longest + 1, dtype=torch.bool)
    is_there[:, 0] = True
    for at, table in enumerate(tables):
        padded[at, 1 : len(table) + 1] = torch.from_numpy(table / scale)
        is_there[at, 1 : len(table) + 1] = True
    wanted = torch.tensor([choice.parent for choice in choices])
    weights = torch.zeros(len(names), dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        log_odds = (padded @ weights).masked_fill(~is_there, -1e9)
        likelihood = torch.nn.functional.cross_entropy(log_odds, wanted, reduction="sum")
        total = likelihood + RIDGE / 2 * (weights[1:] ** 2).sum()
        total.backward()
        return total

    solver.step(loss)
    return dict(zip(names, (weights.detach().numpy() / scale).tolist(), strict=True))


def fit(trees: Sequence[Tree]) -> None:
    """Write the weights of all trees; before, print how well those of four fifths choose in the
    rest."""
    choices = [choice for tree in trees for choice in read_choices(tree)]
    names = sorted({choice.tree for choice in choices})
    right, given = [], []
    for fold in range(5):
        held = set(names[fold::5])
        weights = fit_weights([choice for choice in choices if choice.tree not in held])
        for choice in choices:
            if choice.tree in held:
                odds = sum(weights[name] * own for name, own in choice.features.items())
                shares = np.exp(np.append(0.0, odds))
                right.append(int(shares.argmax()) == choice.parent)
                given.append(shares.max() / shares.sum())
    held_out = f"{np.mean(right):.3f} of held-out trees right"
    print(f"{len(choices)} choices in {len(names)} trees; {held_out}")
    for low, high in ((0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        inside = (np.array(given) >= low) & (np.array(given) < high)
        if inside.any():
            mean, share = np.array(given)[inside].mean(), np.array(right)[inside].mean()
            print(f"   {mean:.2f} → {share:.2f} ({inside.sum()})")
    weights = fit_weights(choices)
    features = [{**row, "weight": round(weights[row["name"]], 3)} for row in FITTED["features"]]
    fitted = {
        "command": "python -m benchmarks.provenance.lineage fit " + " ".join(names),
        "families": f"{len(names)} trees, {len(choices)} choices",
        "date": datetime.now(UTC).date().isoformat(),
        "features": features,
    }
    Path(descent.__file__).with_name("odds.json").write_text(json.dumps(fitted, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build")
    build.add_argument("out", type=Path)
    build.add_argument("--texts", type=Path, required=True)
    build.add_argument("--shape", choices=("wide", "chains", "random", "stages"), default="wide")
    build.add_argument("--seed", type=int, default=101)
    small = commands.add_parser("small")
    small.add_argument("out", type=Path)
    small.add_argument("--texts", type=Path, required=True)
    small.add_argument("--seeds", type=int, nargs=2, default=(1000, 1040))
    for name in ("score", "fit"):
        commands.add_parser(name).add_argument("trees", type=Path, nargs="+")
    asked = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    if asked.command == "build":
        from .trees import make_tree

        print(make_tree(asked.shape, asked.seed, asked.texts, asked.out))
    elif asked.command == "small":
        from .small_trees import write_trees

        write_trees(asked.out, asked.texts, range(*asked.seeds))
    else:
        (score if asked.command == "score" else fit)([read_tree(path) for path in asked.trees])


if __name__ == "__main__":
    main()
