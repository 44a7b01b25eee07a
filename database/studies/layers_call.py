"""The layers study of a model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..opened import Place
from .calls import RUNNING, Running, StudyCalls, load_texts
from .subject import find_subject
from .tables import LayerStudy

if TYPE_CHECKING:
    from typing import Unpack


class LayersCall(StudyCalls):
    """`layers`."""

    def layers(
        self,
        model: str,
        *,
        texts: Place,
        transfer: Place | None = None,
        untrained: bool = True,
        embedding: bool = True,
        keep_tokens: int = 1000,
        most_texts: int = 300,
        seed: int = 0,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> LayerStudy:
        """What tells layers apart: norms, PCA, a classifier and every control of it.

        Args:
            texts: A file or folder of texts.
            transfer: A second set of texts, on which the classifier is tried.
            untrained: Whether an untrained twin is a control.
            embedding: Whether layer 0 is a layer.
            keep_tokens: Tokens sampled from each set of texts.
            most_texts: Texts drawn from each set.
            running: See `Running`.

        Returns:
            A row for the classifier and for each control: `name`, `accuracy` (0…1).

        Raises:
            StudyError: the network or the texts cannot be studied.

        >>> "untrained" in [row["name"] for row in db.layers("imdb-0", texts="texts.txt")]
        True
        """
        from ...study import pictures
        from ...study.layers import layers_study
        from ...study.network import untrained_twin
        from .settings import LayersSettings

        run = RUNNING | running
        read = load_texts(Path(texts)).drawn(most_texts, seed)
        others = None
        if transfer is not None:
            others = load_texts(Path(transfer)).drawn(most_texts, seed)
        subject = find_subject(self._catalog, model, base)
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, *filter(None, (read, others)))
        twin = untrained_twin(network, seed=seed) if untrained else None
        report = layers_study(
            self._states(network, read, run),
            other=self._states(network, others, run) if others else None,
            untrained=self._states(twin, read, run) if twin else None,
            include_embedding=embedding,
            max_tokens=keep_tokens,
            seed=seed,
        )
        settings = LayersSettings(
            texts=read.digest,
            transfer=others.digest if others else None,
            untrained=untrained,
            embedding=embedding,
            keep_tokens=keep_tokens,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        document = {"model": network.name} | report.to_json() | text_notes
        self._save(subject, "layers", asdict(settings), document)
        title = f"Layers of {network.name}"
        return LayerStudy(document, title, partial(pictures.draw_layers, report))
