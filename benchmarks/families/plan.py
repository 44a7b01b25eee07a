"""Which models a family has: one run each, its settings drawn from its own name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .text_sets import CUTS

RATES = (3e-5, 2e-4)
BATCH = (16, 32)
LORA_RATES = (5e-4, 2e-3)
LORA_STEPS = (80, 130)
LORA_RANKS = (4, 8, 16)
LORA_TARGETS = (("query", "value"), ("query", "key", "value", "dense"))
SMALL_RATES = (2e-4, 8e-4)
SMALL_LORA_RATES = (2e-3, 6e-3)
SMALL_LORA_TARGETS = {
    "gpt2": (("c_attn",), ("c_attn", "c_proj", "c_fc")),
    "llama": (("q_proj", "v_proj"), ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")),
    "t5": (("q", "v"), ("q", "k", "v", "o")),
}
FEW_STEPS = (15, 30)

KINDS = ("full", "lora", "continued", "few-steps", "halves", "schemes", "frozen", "lora-halves")
DERIVED_KINDS = ("bfloat16", "merged")
"""Made from the full fine-tunes, without training."""

SETTINGS = "run.json"
"""What a model was made with; in its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which models a benchmark has.

    Attributes:
        runs: Runs a text set of each kind, in the order of training.
        steps: Fewest and most steps of a run that trains every weight.
        sets: Text sets; every file of the folder, where there are none.
        repeated: Further runs of each kind of the set `dominating`.
        base: A small base that is trained first (`small_bases.BASES`); MiniLM, if none is named.
    """

    runs: Mapping[str, int]
    steps: tuple[int, int]
    sets: tuple[str, ...] = ()
    dominating: str = ""
    repeated: Mapping[str, int] = field(default_factory=dict)
    base: str = ""

    @property
    def causal(self) -> bool:
        """Language models, trained without labels."""
        return self.base in ("gpt2", "llama")


PLANS = {
    "six": Plan(runs=dict.fromkeys(KINDS[:-1], 4), steps=(90, 180)),
    "twelve": Plan(
        runs={"halves": 1, "lora": 2, "few-steps": 1, "frozen": 1, "continued": 1, "schemes": 2},
        steps=(40, 70),
        sets=tuple(CUTS),
        dominating="mr-long",
        repeated={"full": 8, "lora": 8},
    ),
    "causal": Plan(
        runs={"halves": 1, "lora": 1, "few-steps": 1, "frozen": 1},
        steps=(40, 80),
        sets=tuple(CUTS),
        base="gpt2",
    ),
    "causal-lora": Plan(runs={"lora-halves": 1}, steps=(40, 80), sets=tuple(CUTS), base="gpt2"),
    "llama": Plan(runs={"halves": 1, "lora": 1}, steps=(40, 80), sets=tuple(CUTS), base="llama"),
    "student": Plan(
        runs={"halves": 1, "lora": 1}, steps=(40, 70), sets=tuple(CUTS), base="student"
    ),
    "t5": Plan(runs={"halves": 1}, steps=(60, 120), sets=tuple(CUTS), base="t5"),
}
"""`six`: long runs of whole files. `twelve`: short runs of cuts, and a set that can dominate.
`causal`: language models on the cuts, from a base that a slice of the same files trained.
`causal-lora`: LoRA of each half, for the same folder. `llama`, `student`, `t5`: families of other
bases on the cuts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One model to train.

    Attributes:
        texts: The text set's name.
        half: Train on the first or second half of the set only, if given.
        by_length: Labels are thirds of text length instead of the set's own.
        share: Share of the rows (of the half) that the run sees.
        lora_rank: None trains every weight.
        lora_steps: Steps of LoRA before its merge is trained on in full.
        frozen_layers: The embeddings and this many first layers keep the base's weights.
        causal: A language model, trained without labels.
        written: A model that writes the label as a text.
    """

    kind: str
    name: str
    texts: str
    seed: int
    rate: float
    steps: int
    batch: int
    share: float
    half: int | None = None
    by_length: bool = False
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()
    lora_rate: float = 0.0
    lora_steps: int = 0
    frozen_layers: int = 0
    causal: bool = False
    written: bool = False

    @property
    def model(self) -> str:
        """Its folder inside the family's, and its id in a catalog."""
        return f"{self.kind}/{self.name}"

    @property
    def dataset(self) -> str:
        """What it was trained on: two models are siblings where this is equal."""
        half = "" if self.half is None else f" {'ab'[self.half]}"
        return self.texts + half + (" by length" if self.by_length else "")


def planned(plan: Plan, kinds: Sequence[str], texts: Sequence[str], runs: int | None) -> list[Run]:
    """The runs of some kinds, round by round, so that a family cut short is still balanced.

    Args:
        runs: Runs a text set, where the plan's number is not wanted.
    """
    wanted = []
    for kind in (kind for kind in plan.runs if kind in kinds):
        for number in range(plan.runs[kind] if runs is None else runs):
            for name in texts:
                wanted += _runs(kind, name, number, plan)
    for kind in (kind for kind in plan.repeated if kind in kinds):
        for number in range(plan.repeated[kind] if plan.dominating in texts else 0):
            wanted.append(_run(kind, plan.dominating, f"again-{number}", number, plan))
    return wanted


def shortened(run: Run, most_steps: int) -> Run:
    """The same run with fewer steps."""
    steps, lora_steps = min(run.steps, most_steps), min(run.lora_steps, most_steps)
    return replace(run, steps=steps, lora_steps=lora_steps)


def _runs(kind: str, name: str, number: int, plan: Plan) -> Iterator[Run]:
    if kind == "halves":
        for half in (0, 1):
            yield _run(kind, name, f"{name}-{'ab'[half]}-{number}", number, plan, half=half)
    elif kind == "lora-halves":
        for half in (0, 1):
            yield _run("lora", name, f"{name}-{'ab'[half]}-{number}", number, plan, half=half)
    elif kind == "schemes":
        yield _run(kind, name, f"{name}-own-{number}", number, plan)
        yield _run(kind, name, f"{name}-length-{number}", number, plan, by_length=True)
    else:
        yield _run(kind, name, f"{name}-{number}", number, plan)


def _run(
    kind: str,
    texts: str,
    name: str,
    number: int,
    plan: Plan,
    *,
    half: int | None = None,
    by_length: bool = False,
) -> Run:
    seed = int.from_bytes(hashlib.sha256(f"{kind}/{name}".encode()).digest()[:4], "big")
    rng = np.random.default_rng(seed)
    lora = kind in ("lora", "continued")
    n_steps = _between(rng, FEW_STEPS if kind == "few-steps" else plan.steps)
    if kind == "continued":
        n_steps //= 2
    targets = SMALL_LORA_TARGETS.get(plan.base, LORA_TARGETS)
    small = plan.base not in ("", "student")
    lora_rates = SMALL_LORA_RATES if small else LORA_RATES
    return Run(
        kind=kind,
        name=name,
        texts=texts,
        seed=seed,
        rate=_log_uniform(rng, SMALL_RATES if small else RATES),
        steps=n_steps,
        batch=_between(rng, BATCH),
        share=float(rng.uniform(0.5, 0.9)),
        half=half,
        by_length=by_length,
        lora_rank=LORA_RANKS[number % len(LORA_RANKS)] if lora else None,
        lora_targets=targets[int(rng.integers(2))] if lora else (),
        lora_rate=_log_uniform(rng, lora_rates) if lora else 0.0,
        lora_steps=_between(rng, LORA_STEPS) if lora else 0,
        frozen_layers=(2 if plan.causal else 3) if kind == "frozen" else 0,
        causal=plan.causal,
        written=plan.base == "t5",
    )


def _between(rng: np.random.Generator, bounds: tuple[int, int]) -> int:
    return int(rng.integers(bounds[0], bounds[1] + 1))


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(*np.log(bounds))))
