"""The geometry study of a model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings, tokenize_with
from .subject import find_subject
from .tables import GeometryStudy

if TYPE_CHECKING:
    from typing import Unpack

    from ...study.geometry import GeometryReport
    from ...study.network import Network
    from ...study.texts import Texts
    from .settings import GeometrySettings

GeometryMethod = Literal["gram", "lanczos", "power"]


class GeometryCall(StudyCalls):
    """`geometry`."""

    def geometry(
        self,
        model: str,
        *,
        texts: Place,
        reference: str | None = None,
        untrained: bool = False,
        scrambled: bool = False,
        method: GeometryMethod = "gram",
        keep_tokens: int = 2000,
        seed: int = 0,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> GeometryStudy:
        """Intrinsic dimension, anisotropy, linearity and divergence, by layer and group of texts.

        Args:
            texts: A file or folder of texts.
            reference: The group of texts that the others are compared with.
            untrained: Whether a network of the same shape with fresh weights is measured beside.
            scrambled: Whether each text is measured with its words in random order too, in a
                further group.
            method: How anisotropy is computed.
            keep_tokens: Tokens of each group that intrinsic dimension is estimated from.
            seed: Of the sampled tokens, the fresh weights, the order of scrambled words and the
                bootstrap.
            running: See `Running`.

        Returns:
            A row for each group: `group`, `tokens`, and `layers` with every measure.

        Raises:
            StudyError: the network or the texts cannot be studied.

        >>> study = db.geometry("imdb-0", texts="texts.txt", untrained=True)
        >>> study[0]["tokens"] > 100, [c["condition"] for c in study.to_json()["contrasts"]]
        (True, ['untrained'])
        """
        from ... import pictures
        from .settings import GeometrySettings

        run = running_settings(running)
        read = load_texts(Path(texts))
        settings = GeometrySettings(
            texts=read.digest,
            reference=reference,
            method=method,
            untrained=untrained,
            scrambled=scrambled,
            keep_tokens=keep_tokens,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        subject = find_subject(self._catalog, model, base)
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, read)
        report = self._measure_geometry(network, read, settings, run)
        document = {"model": network.name} | report.to_json() | text_notes
        self._save(subject, "geometry", asdict(settings), document)
        title = f"Geometry of {network.name}"
        draw = partial(pictures.draw_geometry, report, model=network.name)
        return GeometryStudy(document | subject.base_notes, title, draw)

    def _measure_geometry(
        self, network: Network, read: Texts, settings: GeometrySettings, run: Running
    ) -> GeometryReport:
        from ...study.geometry import GeometryOptions, geometry_study, scrambled
        from ...study.network import untrained_twin
        from ...study.texts import Texts

        entries = read.entries
        if settings.scrambled:
            entries += tuple(scrambled(read.entries, settings.seed))
        texts = Texts(entries, read.broken)
        twin = untrained_twin(network, seed=settings.seed) if settings.untrained else None
        return geometry_study(
            self._states(network, texts, run),
            texts.entries,
            untrained=None if twin is None else self._states(twin, texts, run),
            reference=settings.reference,
            options=GeometryOptions(
                method=settings.method, keep=settings.keep_tokens, seed=settings.seed
            ),
            tokenize=tokenize_with(network),
            unknown=getattr(network.tokenizer, "unk_token_id", None),
        )
