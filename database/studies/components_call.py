"""The components study of a model, alone or against a relative."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...study.study import find_subject
from ..opened import Place
from .calls import Running, StudyCalls, load_texts, running_settings
from .tables import ComponentStudy

if TYPE_CHECKING:
    from typing import Unpack


class ComponentsCall(StudyCalls):
    """`components`."""

    def components(
        self,
        model: str,
        *,
        texts: Place | None = None,
        against: str | None = None,
        special_tokens: bool = False,
        heads: bool = False,
        linear: bool = False,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> ComponentStudy:
        """What hidden states are made of: input, attention, feed-forward, bias; each 0…1.

        Args:
            texts: A file or folder of texts; 64 built-in texts in 8 languages by default.
            against: The base, or a relative: what moved, and which layer was edited.
            special_tokens: Whether special tokens and first positions count too.
            heads: Whether attention is split by head: each head's importance, and with
                `against` the change of its own output.
            linear: Whether the feed-forward term is fitted by a linear map of the other terms,
                and the feed-forward's output by one of its input: R² by layer on a fifth of the
                texts, which the fits do not see. A fit needs ten tokens for each coordinate.
            running: See `Running`.

        Raises:
            StudyError: the network or the texts cannot be studied.

        >>> study = db.components("imdb-0", texts="texts.txt", against="base")
        >>> study.save_picture("components.png").name
        'components.png'
        """
        from ...study import pictures
        from ...study.components import components_study
        from ...study.profile import probe_texts
        from .settings import ComponentsSettings

        run = running_settings(running)
        read = probe_texts() if texts is None else load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base, hint=against)
        network = subject.load(run["device"])
        text_notes = self._text_notes(network, run, read)
        relative = None
        if against:
            relative = find_subject(self._catalog, against, None).load(run["device"])
            subject.require_descent(network, relative)
        report = components_study(
            network,
            read.entries,
            against=relative,
            heads=heads,
            linear=linear,
            keep_special=special_tokens,
            keep_first=special_tokens,
            watched=lambda batches: self._batches(batches, read, run),
            batch_size=run["batch_size"],
            max_tokens=run["max_tokens"],
        )
        settings = ComponentsSettings(
            texts=read.digest,
            against=against,
            special_tokens=special_tokens,
            heads=heads,
            linear=linear,
            max_tokens=run["max_tokens"],
        )
        document = report.to_json() | text_notes
        self._save(subject, "components", asdict(settings), document)
        title = f"Components of {network.name}"
        return ComponentStudy(
            document | subject.base_notes, title, partial(pictures.draw_components, report)
        )
