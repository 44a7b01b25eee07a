"""The CKA study of a model beside another one."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...study.study import find_subject
from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings
from .tables import CkaStudy

if TYPE_CHECKING:
    from typing import Unpack


class CkaCall(StudyCalls):
    """`cka`."""

    def cka(
        self,
        model: str,
        *,
        texts: Place,
        against: str | None = None,
        keep_tokens: int = 4000,
        seed: int = 0,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> CkaStudy:
        """How alike the layers of two models represent the same tokens: linear CKA, by layer.

        Args:
            texts: A file or folder of texts.
            against: Another model, of any width and depth with the same tokenizer; its base by
                default.
            keep_tokens: Tokens sampled at random.
            seed: Of the sample, and of the blocks of texts behind the standard errors.
            running: See `Running`.

        Returns:
            A row for each layer, beside the other model's layer of the same relative depth; the
            document has every layer beside every layer (`matrix`, debiased).

        Raises:
            RequestError: no other model is named, and no base is known.
            StudyError: the models cut texts into other tokens, or cannot be studied.

        >>> study = db.cka("imdb-0", texts="texts.txt", against="imdb-0")
        >>> [round(row["debiased"], 3) for row in study]
        [1.0, 1.0, 1.0]
        """
        from ...study import pictures
        from ...study.cka import cka_study
        from .settings import CkaSettings

        run = running_settings(running)
        read = load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base, hint=against)
        other = find_subject(self._catalog, against, None) if against else None
        name = against or subject.require_base()
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, read)
        relative = (other.load if other else subject.load_base)(run["device"])
        if other is None:
            subject.require_descent(network, relative)
        report = cka_study(
            network,
            relative,
            read.entries,
            keep_tokens=keep_tokens,
            seed=seed,
            batch_size=run["batch_size"],
            max_tokens=run["max_tokens"],
            watched=lambda batches: self._batches(batches, read, run),
        )
        settings = CkaSettings(
            texts=read.digest,
            against=name,
            keep_tokens=keep_tokens,
            seed=seed,
            max_tokens=run["max_tokens"],
        )
        document = report.to_json() | text_notes
        self._save(subject, "cka", asdict(settings), document)
        title = f"CKA of {network.name} and {relative.name}"
        return CkaStudy(document | subject.base_notes, title, partial(pictures.draw_cka, report))
