"""Several data sets as queries at once: a table of data sets and models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError, ModelError, RequestError
from .data_making import DataMaking, DataReading
from .data_questions import MEANING, DataQuestions
from .data_score_table import DataScoresTable
from .opened import Place

if TYPE_CHECKING:
    from typing import Unpack

    from ..records import DataSet


class SeveralDataQuestions(DataQuestions):
    """What a `Database` answers about several data sets."""

    def find_trained_on_each(
        self,
        data: Place | Sequence[Place],
        k: int = 10,
        *,
        base: str | None = None,
        recipe: str | None = None,
        dataset: str | None = None,
        author: str | None = None,
        where: str | None = None,
        **reading: Unpack[DataReading],
    ) -> DataScoresTable:
        """Several data sets beside every model of a family: z of each pair.

        Each is run through the base, which is loaded once, and compared as `find_trained_on` does;
        the others of the list count as other data. One that cannot be read stops no other.

        Args:
            data: A folder, each file and each folder in it being a data set of its own; or several
                files and folders.
            k: Models that are listed as nearest to each.
            base, recipe, dataset, author, where, reading: As in `find_trained_on`.

        Returns:
            A row for each data set: `data`, `examples`, `loss`, `verdict`, `nearest`, `z`, `fdr`,
            `control`. The document has z with every model. `save` writes a table or a picture.

        Raises:
            RequestError: the filters or k are wrong.
            DataError: the folder has no data files, or none of them can be read.
            StudyError: the base cannot be loaded.

        >>> scores = db.find_trained_on_each(["reviews.csv"], k=2)
        >>> [row["data"] for row in scores], len(scores.to_json()["data"][0]["z"])
        (['reviews'], 4)
        """
        from ..search import find_trained_on_each
        from ..store import Filters
        from ..training_data import data_set_names, data_sets_in

        if k < 1:
            raise RequestError(f"k must be at least 1, got {k}")
        is_folder = isinstance(data, str | Path)
        paths = (
            data_sets_in(Path(data).expanduser())
            if isinstance(data, str | Path)
            else tuple(Path(one).expanduser() for one in data)
        )
        if not paths:
            raise RequestError("name a folder of data sets, or several files")
        family = self._family_of(base)
        self._require_labels(dataset, author)
        self._catalog.find_recipe(recipe, family)
        making = DataMaking(self._catalog, family, recipe, reading, self._track)
        sets: list[DataSet] = []
        failed: list[dict[str, str]] = []
        names = data_set_names(paths)
        for path, name in zip(
            self._track(paths, "data sets", total=len(paths)), names, strict=True
        ):
            try:
                sets.append(making.make(making.read(path), name))
            except (DataError, RequestError, ModelError) as err:
                failed.append({"data": name, "reason": str(err)})
        if not sets:
            where_from = f"{data}: " if is_folder else ""
            raise DataError(f"{where_from}no data set could be read; {failed[0]['reason']}")
        filters = Filters(dataset=dataset, author=author, where=where)
        scores = find_trained_on_each(self._catalog, sets, k=k, filters=filters)
        return DataScoresTable({**scores.to_json(), "failed": failed, "meaning": MEANING})
