"""The layers study of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError, RequestError, StudyError
from ...study.study import Subject, find_subject
from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings
from .tables import LayerStudy

if TYPE_CHECKING:
    from typing import Unpack

    from ...study.layers import LayersPlan, ModelPoint
    from ...study.network import TokenStates
    from ...study.texts import Texts


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
        punctuation: bool = True,
        sweep_context: Sequence[int] = (),
        sweep_texts: Sequence[int] = (),
        also: Sequence[str] = (),
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
            punctuation: Whether tokens without a letter or digit are part of the study.
            sweep_context: Context lengths in tokens: the classifier's accuracy on texts with as
                many tokens as the longest, cut to each.
            sweep_texts: Numbers of training texts: its accuracy when it learns from so many.
            also: Models of other sizes: the classifier's accuracy on each.
            keep_tokens: Tokens sampled from each set of texts.
            most_texts: Texts drawn from each set.
            running: See `Running`.

        Returns:
            A row for the classifier and for each control: `name`, `accuracy` (0…1). The document
            also has `norms`, `pca`, `contributions` (`n50`, `n90`, `max_share`, `largest`,
            `curve` by layer), `tree`, and `context_sweep`, `texts_sweep` and `models`, which are
            None unless they were asked for.

        Raises:
            RequestError: no such model.
            StudyError: the network or the texts cannot be studied.

        >>> "untrained" in [row["name"] for row in db.layers("imdb-0", texts="texts.txt")]
        True
        >>> study = db.layers("imdb-0", texts="texts.txt", untrained=False, sweep_texts=[5, 10])
        >>> [point["value"] for point in study.to_json()["texts_sweep"]["points"]]
        [5, 10]
        """
        from ...study import pictures
        from ...study.layers import LayersPlan, studied_model, study_network, sweep_contexts
        from .settings import LayersSettings

        run = running_settings(running)
        whole = load_texts(Path(texts))
        read = whole.drawn(most_texts, seed)
        others = load_texts(Path(transfer)).drawn(most_texts, seed) if transfer else None
        subject = find_subject(self._catalog, model, base)
        compared = [find_subject(self._catalog, other, None) for other in also]
        plan = LayersPlan(
            include_embedding=embedding,
            punctuation=punctuation,
            keep_tokens=keep_tokens,
            most_texts=most_texts,
            seed=seed,
            batch_size=run["batch_size"],
            cut=run["max_tokens"],
            watched=partial(self._passed, batch_size=run["batch_size"]),
        )
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, *filter(None, (read, others)))
        swept = None
        if sweep_context:  # first: it may find too few texts
            unique = whole.drawn(len(whole.entries), seed)
            swept = sweep_contexts(network, unique.entries, sweep_context, plan)
        report = study_network(
            network,
            read.entries,
            plan,
            other=others.entries if others else None,
            untrained=untrained,
            sweep_texts=sweep_texts,
        )
        report = replace(report, context_sweep=swept)
        failed: dict[str, list[dict[str, str]]] = {}
        if also:
            points, failed["failed"] = self._measure(compared, read, plan, run["device"])
            report = replace(report, models=(studied_model(network, report), *points))

        document = {"model": network.name} | report.to_json() | text_notes | failed
        settings = LayersSettings(
            texts=read.digest,
            transfer=others.digest if others else None,
            untrained=untrained,
            embedding=embedding,
            punctuation=punctuation,
            context_texts=whole.digest if sweep_context else None,
            sweep_context=sorted(set(sweep_context)),
            sweep_texts=sorted(set(sweep_texts)),
            also=list(also),
            keep_tokens=keep_tokens,
            most_texts=most_texts,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        self._save(subject, "layers", asdict(settings), document)
        title = f"Layers of {network.name}"
        draw = partial(pictures.draw_layers, report, model=network.name)
        return LayerStudy(document | subject.base_notes, title, draw)

    def _passed(
        self, batches: Iterable[TokenStates], n_texts: int, *, batch_size: int
    ) -> Iterator[TokenStates]:
        """The same batches, tracked."""
        return self._track(batches, "batches", total=-(-n_texts // batch_size))

    def _measure(
        self, subjects: Sequence[Subject], texts: Texts, plan: LayersPlan, device: str
    ) -> tuple[list[ModelPoint], list[dict[str, str]]]:
        """A point for each model that can be studied, and the reason for each that cannot."""
        from ...study.layers import measure_model

        points, failed = [], []
        for subject in subjects:
            try:
                points.append(measure_model(subject.load(device), texts.entries, plan))
            except (StudyError, RequestError, ModelError) as err:
                failed.append({"model": subject.name, "reason": str(err)})
        return points, failed
