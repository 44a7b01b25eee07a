"""The logit lens of a causal language model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...study.study import find_subject
from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings
from .tables import LogitLensStudy

if TYPE_CHECKING:
    from typing import Unpack


class LogitLensCall(StudyCalls):
    """`logit_lens`."""

    def logit_lens(
        self,
        model: str,
        *,
        texts: Place,
        against: str | None = None,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> LogitLensStudy:
        """What each layer of a causal model would predict, and which layer decides.

        The final norm and the model's own head read the state of every layer.

        Args:
            texts: A file or folder of texts.
            against: Another causal model with the same tokenizer, such as the base: the
                document has the differences, with standard errors over texts.
            running: See `Running`.

        Returns:
            A row for each layer; the last one is the model itself, whose `bits_per_character` is
            its cross-entropy over the characters that it predicts.

        Raises:
            StudyError: the model is not causal, was saved without its head, or cannot be studied.

        >>> db.logit_lens("imdb-0", texts="texts.txt")
        Traceback (most recent call last):
        deltadex.errors.StudyError: imdb-0: bert is no causal language model; ...
        """
        from ...study import pictures
        from ...study.lens import lens_study
        from .settings import LogitLensSettings

        run = running_settings(running)
        read = load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base, hint=against)
        other = find_subject(self._catalog, against, None) if against else None
        causal = subject.load_causal(run["device"])
        text_notes = self._text_notes(causal.network, run, read)
        report = lens_study(
            causal,
            read.entries,
            against=other.load_causal(run["device"]) if other else None,
            batch_size=run["batch_size"],
            max_tokens=run["max_tokens"],
            watched=lambda batches: self._batches(batches, read, run),
        )
        settings = LogitLensSettings(
            texts=read.digest, against=against, max_tokens=run["max_tokens"]
        )
        document = report.to_json() | text_notes
        self._save(subject, "logit-lens", asdict(settings), document)
        title = f"Logit lens of {report.model}"
        return LogitLensStudy(
            document | subject.base_notes, title, partial(pictures.draw_logit_lens, report)
        )
