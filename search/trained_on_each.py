"""Several data sets beside the models of a family: a table of z."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from ..arrays import Float64
from ..errors import RequestError
from ..records import DataSet
from ..store import Catalog, Filters
from .kept_data import compare_kept
from .neighbours import EVERY_MODEL
from .trained_on import TrainedModels, nearest_models, other_data


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModelsOfEach:
    """Every data set with every model that passes the filters.

    Attributes:
        sets: The data sets, a row each.
        answers: What `find-trained-on` answers of each.
        models: By id, a column each.
        z: Deviations above a data set's scores with the family's strangers.
    """

    sets: tuple[DataSet, ...]
    answers: tuple[TrainedModels, ...]
    models: tuple[str, ...]
    z: Float64[np.ndarray, "data models"] = field(compare=False)

    def to_json(self) -> dict[str, object]:
        """The documented keys, ready for json.dumps."""
        answer = self.answers[0]
        return {
            "base": answer.base,
            "recipe": answer.recipe,
            "recipe_id": answer.recipe_id,
            "compared": answer.compared,
            "calibration": answer.calibration.to_json(),
            "models": list(self.models),
            "data": [
                {
                    "data": data.name,
                    "loss": data.loss,
                    "examples": data.examples,
                    "sha256": data.sha256,
                    "verdict": answer.verdict,
                    "references": answer.references,
                    "control": answer.control_json(),
                    "nearest": [asdict(model) for model in answer.models],
                    "z": row,
                }
                for data, answer, row in zip(self.sets, self.answers, self.z.tolist(), strict=True)
            ],
        }


def find_trained_on_each(
    catalog: Catalog, sets: Sequence[DataSet], *, k: int, wanted: Filters = EVERY_MODEL
) -> TrainedModelsOfEach:
    """The z of data sets of one family with its models, and the `k` models nearest to each.

    A data set is normalised by the others of the list and by those that are kept.

    Raises:
        RequestError: k < 1, no data set, or the family keeps no sketches of the recipe.
    """
    if k < 1 or not sets:
        raise RequestError(f"k must be at least 1, got {k}" if sets else "name a data set")
    base, recipe = sets[0].base, sets[0].fingerprint.recipe

    def answer() -> TrainedModelsOfEach:
        view = catalog.family(base, recipe)
        pool = [*sets, *catalog.data_sets.all(base, view.recipe.id)]
        answers = [
            nearest_models(view, data, other_data(pool, data), k=k, wanted=wanted) for data in sets
        ]
        rows = np.arange(len(view)) if wanted.passes_all else view.rows_where(wanted)
        order = sorted(view.labels_at(rows.tolist()), key=view.ids.__getitem__)
        compared = compare_kept(view, sets, np.array(order, dtype=np.int64), others=pool)
        if compared is None:
            raise RequestError(f"no model of {base} has sketches under {view.recipe.id}")
        return TrainedModelsOfEach(
            sets=tuple(sets),
            answers=tuple(answers),
            models=tuple(view.ids[row] for row in order),
            z=compared.z,
        )

    return catalog.look(answer)
