"""Shapes of the answers, for the OpenAPI document. Every answer may have further keys.

Declared here and not derived: an answer is what `to_json` makes of a record, whose names and
nesting differ (a recipe is its name and its id), and clients read the same while fields change.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class ProblemAnswer(Answer):
    """RFC 9457; `code` is for programs, `detail` for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class ComputingAnswer(Answer):
    """Being computed: ask again."""

    status: Literal["computing"]
    retry_after_s: int = Field(ge=1)
    job: str | None = None


class RecipeCount(Answer):
    id: str
    name: str
    rank: int
    dim: int
    models: int


class FamilyAnswer(Answer):
    base: str
    models: int
    indexed: int
    labelled: int
    datasets: int
    recipes: list[RecipeCount]


class FamiliesAnswer(Answer):
    families: list[FamilyAnswer]
    writable: bool
    umap: bool
    version: str


class StatsAnswer(Answer):
    path: str
    bytes: int
    bases: list[dict[str, Any]]
    recipes: list[dict[str, Any]]
    statuses: dict[str, int]
    verified: dict[str, int]


class ModelAnswer(Answer):
    model: str
    base: str
    status: str
    code: str | None
    reason: str | None
    dataset: str | None
    author: str | None
    run: str | None
    kind: str
    method: str
    source: str
    downloads: int | None
    notes: list[str]
    recipes: list[str]


class ModelsAnswer(Answer):
    models: list[ModelAnswer]
    total: int
    limit: int
    offset: int


class SlotAnswer(Answer):
    slot: str
    shape: list[int]
    fro_norm: float | None
    relative_norm: float | None
    sigma: list[float | None]
    energy: float | None
    stable_rank: float | None
    noise_floor: float | None


class ModelInFull(ModelAnswer):
    slots: list[SlotAnswer]


class QueryAnswer(Answer):
    model: str
    dataset: str | None
    base: str


Verdict = Literal["copy", "likely the same data", "perhaps", "no model stands out"]


class Evidence(Answer):
    """`z` is in standard deviations above the family's strangers; `fdr` is the share of such
    answers that are expected to be wrong."""

    rank: int
    verdict: Verdict
    z: float | None
    fdr: float | None = Field(ge=0, le=1)
    cosine: float | None


class NeighbourAnswer(Evidence):
    """`score` is z, bounded to −1…1."""

    model: str
    score: float | None
    dataset: str | None
    author: str | None
    run: str | None
    base: str
    source: str | None = Field(None, description="Always null: a service searches its catalog only")


class CalibrationAnswer(Answer):
    """What `fdr` is known from; `datasets` have siblings among the labelled models."""

    rate: float
    source: Literal["labelled pairs", "the null alone"]
    datasets: int
    queries: int


class SimilarAnswer(Answer):
    """`verdict` is of the nearest model; `compared` counts the models that pass the filters."""

    query: QueryAnswer
    recipe: str
    recipe_id: str
    verdict: Verdict
    compared: int
    attached: list[str] = Field([], description="Always empty, as `source` is null")
    calibration: CalibrationAnswer
    neighbours: list[NeighbourAnswer]


class NearDataAnswer(Evidence):
    """A kept data set near a model."""

    data: str
    examples: int
    loss: str
    z_error: float | None


class NearestDataAnswer(Answer):
    """`meaning` says what an answer proves at most."""

    query: dict[str, Any]
    recipe: str
    recipe_id: str
    verdict: str
    calibration: CalibrationAnswer
    data: list[NearDataAnswer]
    meaning: str


class FailedQuery(Answer):
    problem: ProblemAnswer


class BatchAnswer(Answer):
    results: list[SimilarAnswer | FailedQuery]


class ShareAnswer(Answer):
    contribution: float | None
    share: float | None


class ExplanationAnswer(Answer):
    query: str
    model: str
    similarity: float | None
    by_role: list[ShareAnswer]
    by_layer: list[ShareAnswer]
    by_block: list[ShareAnswer]
    slots: list[ShareAnswer]
    only_query: list[str]
    only_model: list[str]


class ConfusionAnswer(Answer):
    """Rows: a labelled model's dataset. Columns: its nearest neighbour's; the last, of none."""

    datasets: list[str]
    counts: list[list[int]]


class EvaluationAnswer(Answer):
    """Numbers are null, where `ci95_reason` says why; p is null of a family too large to test."""

    recipe: str
    recipe_id: str
    way: str
    models: int
    labelled: int
    unlabelled: int
    datasets: int
    queries: int
    sampled_queries: int | None
    singletons: int
    dropped: int
    k: Literal["siblings"]
    micro: float | None
    macro: float | None
    chance: float | None
    ci95: list[float] | None
    ci95_reason: str | None
    p_value: float | None
    nn1: float | None
    map: float | None
    by_dataset: dict[str, Any] | None
    confusion: ConfusionAnswer | None
    exclude: Literal["author", "run"] | None
    with_unlabelled: bool


class DataPlaceAnswer(Answer):
    """A kept data set on a map, with the few models nearest to it."""

    name: str
    x: float | None
    y: float | None
    examples: int
    loss: str
    verdict: Verdict
    nearest: list[dict[str, Any]]


class MapAnswer(Answer):
    """Columns, a model in each row; names by their place in the lists beside. `data` is there only
    if the family keeps data sets."""

    base: str
    recipe: str
    layout: str
    explained: list[float | None] | None
    seed: int
    models: list[str]
    x: list[float | None]
    y: list[float | None]
    dataset: list[int | None]
    datasets: list[str]
    author: list[int | None]
    authors: list[str]
    kind: list[int | None]
    kinds: list[str]
    downloads: list[int | None]
    data: list[DataPlaceAnswer] | None = None


class ClustersAnswer(Answer):
    base: str
    recipe: str
    models: int
    clusters: list[dict[str, Any]]
    noise: list[str]
    ari: float | None
    nmi: float | None
    silhouette: dict[str, Any]
    suggestions: list[dict[str, Any]]
    hints: list[dict[str, Any]]
    abstained: int
    calibration: dict[str, Any]


class FailuresAnswer(Answer):
    failures: list[dict[str, Any]]


class HealthAnswer(Answer):
    status: Literal["ok"]


class ReadyAnswer(Answer):
    ready: bool


class RemovedAnswer(Answer):
    removed: str
    base: str


class AddedAnswer(Answer):
    base: str
    recipe: str
    indexed: int
    failed: list[dict[str, Any]]
