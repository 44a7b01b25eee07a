"""The geometry study of a model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..opened import Place
from .calls import RUNNING, Running, StudyCalls, load_texts, tokenize_with
from .subject import find_subject
from .tables import GeometryStudy

if TYPE_CHECKING:
    from typing import Unpack

GeometryMethod = Literal["gram", "lanczos", "power"]


class GeometryCall(StudyCalls):
    """`geometry`."""

    def geometry(
        self,
        model: str,
        *,
        texts: Place,
        reference: str | None = None,
        method: GeometryMethod = "gram",
        keep_tokens: int = 2000,
        seed: int = 0,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> GeometryStudy:
        """Intrinsic dimension, anisotropy and divergence of hidden states, by layer and group.

        Args:
            texts: A file or folder of texts.
            reference: The group of texts that the others are compared with.
            method: How anisotropy is computed.
            keep_tokens: Tokens of each group that intrinsic dimension is estimated from.
            running: See `Running`.

        Raises:
            StudyError: the network or the texts cannot be studied.

        >>> db.geometry("imdb-0", texts="texts.txt")[0]["tokens"] > 100
        True
        """
        from ...study import pictures
        from ...study.geometry import GeometryOptions, geometry_study
        from .settings import GeometrySettings

        run = RUNNING | running
        read = load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base)
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, read)
        report = geometry_study(
            self._states(network, read, run),
            read.entries,
            reference=reference,
            options=GeometryOptions(method=method, keep=keep_tokens, seed=seed),
            tokenize=tokenize_with(network),
            unknown=getattr(network.tokenizer, "unk_token_id", None),
        )
        settings = GeometrySettings(
            texts=read.digest,
            reference=reference,
            method=method,
            keep_tokens=keep_tokens,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        document = {"model": network.name} | report.to_json() | text_notes
        self._save(subject, "geometry", asdict(settings), document)
        title = f"Geometry of {network.name}"
        return GeometryStudy(document, title, partial(pictures.draw_geometry, report))
