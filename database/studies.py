"""Studies of models: which model, over which texts, what is stored."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..errors import ModelError, RequestError, StoreError, StudyError
from .opened import Opened, Place, Thing
from .subject import Subject, family_subjects, find_subject
from .tables import ComponentStudy, GeometryStudy, LayerStudy, ProfileTable, RankStudy, Row

if TYPE_CHECKING:
    from typing import Unpack

    from ..records import Fingerprint
    from ..study.network import Network, TokenStates
    from ..study.profile import ProbedBase
    from ..study.rank import RankReport
    from ..study.texts import Texts
    from .study_settings import RankSettings

log = logging.getLogger(__name__)

GeometryMethod = Literal["gram", "lanczos", "power"]

MAX_BROKEN_ROWS = 5
"""Rows of a file of texts that are named in the log; the document has all."""


class Running(TypedDict, total=False):
    """How a network is run over texts.

    Keys:
        batch_size: Texts at once; 16 by default.
        max_tokens: Tokens that a text is cut to; 128 by default.
        device: As torch names it; `cpu` by default.
    """

    batch_size: int
    max_tokens: int
    device: str


RUNNING: Running = {"batch_size": 16, "max_tokens": 128, "device": "cpu"}


class Studies(Opened):
    """Studies of models; that of an indexed model is stored beside its fingerprint."""

    def rank(
        self,
        model: str | None = None,
        *,
        family: str | None = None,
        thetas: Sequence[float] = (0.5, 0.9, 0.99),
        weights: bool = False,
        base: str | None = None,
    ) -> RankStudy:
        """How many directions an update ΔW has, by role and depth, and what law that follows.

        Args:
            model: An id, a folder or a Hub id; or a `family`, whose models' mean is given.
            thetas: Shares of |ΔW|² to be explained, above 0 and up to 1; the first is drawn.
            weights: Whether the ranks are of the weights W themselves.

        Returns:
            A row for each weight matrix; the document has curves by role and depth.

        Raises:
            RequestError: neither or both of `model` and `family`.
            StudyError: no model could be studied.

        >>> len(db.rank("imdb-0", thetas=[0.9])) == len(db.show("imdb-0"))
        True
        """
        from ..study import pictures
        from ..study.rank import family_ranks
        from .study_settings import RankSettings

        if (model is None) == (family is None):
            raise RequestError("give a MODEL, or --family BASE")
        settings = RankSettings(
            thetas=sorted(set(thetas)), subject="weights" if weights else "update"
        )
        failed: list[dict[str, str]] = []
        if model is not None:
            report = self._ranks(find_subject(self._catalog, model, base), settings)
        else:
            assert family is not None
            subjects = family_subjects(self._catalog, family)
            reports, failed = self._each(subjects, lambda member: self._ranks(member, settings))
            report = family_ranks(reports, name=family)

        document = report.to_json() | {"failed": failed}
        return RankStudy(
            document, f"Ranks of {report.name}", lambda: pictures.draw_ranks(report, thetas[0])
        )

    def components(
        self,
        model: str,
        *,
        texts: Place | None = None,
        against: str | None = None,
        special_tokens: bool = False,
        base: str | None = None,
        **running: Unpack[Running],
    ) -> ComponentStudy:
        """What hidden states are made of: input, attention, feed-forward, bias; each 0…1.

        Args:
            texts: A file or folder of texts; 64 built-in texts in 8 languages by default.
            against: The base, or a relative: what moved, and which layer was edited.
            special_tokens: Whether special tokens and first positions count too.
            running: See `Running`.

        Raises:
            StudyError: the network or the texts cannot be studied.

        >>> study = db.components("imdb-0", texts="texts.txt", against="base")
        >>> study.save_picture("components.png").name
        'components.png'
        """
        from ..study import pictures
        from ..study.components import components_study
        from ..study.profile import probe_texts
        from .study_settings import ComponentsSettings

        run = RUNNING | running
        read = probe_texts() if texts is None else load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base, hint=against)
        network = subject.load(run["device"])
        relative = find_subject(self._catalog, against, None) if against else None
        report = components_study(
            network,
            read.entries,
            against=relative.load(run["device"]) if relative else None,
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
            max_tokens=run["max_tokens"],
        )
        document = report.to_json() | {"broken_rows": list(read.broken)}
        self._save(subject, "components", asdict(settings), document)
        title = f"Components of {network.name}"
        return ComponentStudy(document, title, lambda: pictures.draw_components(report))

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
        from ..study import pictures
        from ..study.geometry import GeometryOptions, geometry_study
        from .study_settings import GeometrySettings

        run = RUNNING | running
        read = load_texts(Path(texts))
        subject = find_subject(self._catalog, model, base)
        network = subject.load(run["device"])
        report = geometry_study(
            self._states(network, read, run),
            read.entries,
            reference=reference,
            options=GeometryOptions(method=method, keep=keep_tokens, seed=seed),
            tokenize=_tokenize(network),
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
        document = {"model": network.name} | report.to_json() | {"broken_rows": list(read.broken)}
        self._save(subject, "geometry", asdict(settings), document)
        title = f"Geometry of {network.name}"
        return GeometryStudy(document, title, lambda: pictures.draw_geometry(report))

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
        from ..study import pictures
        from ..study.layers import layers_study
        from ..study.network import untrained_twin
        from .study_settings import LayersSettings

        run = RUNNING | running
        read = load_texts(Path(texts)).drawn(most_texts, seed)
        others = None
        if transfer is not None:
            others = load_texts(Path(transfer)).drawn(most_texts, seed)
        subject = find_subject(self._catalog, model, base)
        network = subject.load(run["device"])
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
        broken = [*read.broken, *(others.broken if others else ())]
        document = {"model": network.name} | report.to_json() | {"broken_rows": broken}
        self._save(subject, "layers", asdict(settings), document)
        title = f"Layers of {network.name}"
        return LayerStudy(document, title, lambda: pictures.draw_layers(report))

    def profile(
        self,
        *models: str,
        family: str | None = None,
        again: bool = False,
        device: str = "cpu",
        base: str | None = None,
    ) -> ProfileTable:
        """One probe over each model: its inside, and activation shifts, stored as fingerprints.

        Args:
            family: A base, all of whose indexed models are probed.
            again: Whether stored profiles are computed again.

        Raises:
            RequestError: no model is named.
            StudyError: no model could be probed; models need a tokenizer.

        >>> db.profile("imdb-0")
        Traceback (most recent call last):
        deltadex.errors.StudyError: no model could be studied; ...tokenizer...
        """
        if not models and family is None:
            raise RequestError("give one MODEL or more, or --family BASE")
        subjects = [find_subject(self._catalog, model, base) for model in models]
        if family is not None:
            subjects += family_subjects(self._catalog, family)
        bases: dict[str, ProbedBase] = {}
        documents, failed = self._each(
            subjects, lambda subject: self._profile(subject, bases, device, again=again)
        )
        return ProfileTable({"profiles": documents, "failed": failed})

    def _profile(
        self, subject: Subject, bases: dict[str, ProbedBase], device: str, *, again: bool
    ) -> Row:
        """The stored profile of a model, or a new one."""
        from ..study.profile import probe_base, profile_model, profile_settings

        settings = profile_settings()
        stored = None if again else self._load(subject, "profile", settings)
        if stored is not None:
            return dict(stored) | {"known": True}
        name = subject.require_base()
        if name not in bases:
            bases[name] = probe_base(subject.load_base(device))
        start = time.perf_counter()
        network = subject.load(device)
        made = profile_model(network, bases[name], loading_s=time.perf_counter() - start)
        self._save(subject, "profile", settings, made.document, made.fingerprints)
        return made.document

    def _ranks(self, subject: Subject, settings: RankSettings) -> RankReport:
        """One model's ranks, from the catalog where they are stored."""
        from ..study.rank import RankReport

        stored = self._load(subject, "rank", asdict(settings))
        if stored is not None:
            return RankReport.from_json(stored)
        report = self._measure_ranks(subject, settings)
        self._save(subject, "rank", asdict(settings), report.to_json())
        return report

    def _measure_ranks(self, subject: Subject, settings: RankSettings) -> RankReport:
        from ..indexer import update_spectra, weight_spectra
        from ..study.rank import rank_study

        spectra_of = weight_spectra if settings.subject == "weights" else update_spectra
        base = subject.require_base()
        _, spectra = spectra_of(self._catalog, subject.require_source(), base)
        family = self._catalog.base(base)
        shapes = family.slots.get("shapes", {}) if family else {}
        depths: dict[str, int] = {}
        for stack, layer in (
            *((s.slot.stack, s.slot.layer) for s in spectra),
            *((name.split(".")[0], int(name.split(".")[1])) for name in shapes),
        ):
            depths[stack] = max(depths.get(stack, 0), layer + 1)
        return rank_study(
            subject.name, spectra, thetas=settings.thetas, n_layers=depths, subject=settings.subject
        )

    def _each(
        self, subjects: Sequence[Subject], study: Callable[[Subject], Thing]
    ) -> tuple[list[Thing], list[dict[str, str]]]:
        """A study of each model; those that cannot be studied are listed, and stop no other.

        Raises:
            StudyError: none could be.
        """
        reports, failed = [], []
        for subject in self._track(subjects, "models", total=len(subjects)):
            try:
                reports.append(study(subject))
            except (StudyError, RequestError, ModelError) as err:
                failed.append({"model": subject.name, "reason": str(err)})
        if not reports:
            raise StudyError(f"no model could be studied; {failed[0]['reason']}")
        return reports, failed

    def _load(self, subject: Subject, study: str, settings: Mapping[str, Any]) -> Any:
        """The stored result of a study with these settings; None for a model not indexed."""
        if subject.key is None:
            return None
        return self._catalog.studies(subject.key).load(study, settings)

    def _save(
        self,
        subject: Subject,
        study: str,
        settings: Mapping[str, Any],
        document: Mapping[str, Any],
        fingerprints: tuple[Fingerprint, ...] = (),
    ) -> None:
        """Store a result beside the model's fingerprint; a catalog that refuses it is no error."""
        if subject.key is None:
            return
        try:
            key = subject.key
            if fingerprints:
                key = self._catalog.add_fingerprints(key, fingerprints)
            # last: a study that is known is not made again, nor are its fingerprints
            self._catalog.studies(key).save(study, settings, document)
        except StoreError as err:
            log.warning("%s: the %s study is not stored: %s", subject.name, study, err)

    def _states(self, network: Network, texts: Texts, run: Running) -> Iterator[TokenStates]:
        """The network's hidden states."""
        from ..study.network import token_states

        states = token_states(
            network, texts.entries, batch_size=run["batch_size"], max_tokens=run["max_tokens"]
        )
        return self._batches(states, texts, run)

    def _batches(self, batches: Iterable[Thing], texts: Texts, run: Running) -> Iterator[Thing]:
        """The same batches of these texts, tracked."""
        n_batches = -(-len(texts.entries) // run["batch_size"])
        return self._track(batches, "batches", total=n_batches)


def load_texts(path: Path) -> Texts:
    """The texts of a file or folder; the first broken rows are named in the log."""
    from ..study.texts import read_texts

    texts = read_texts(path)
    for line in texts.broken[:MAX_BROKEN_ROWS]:
        log.warning("%s", line)
    if len(texts.broken) > MAX_BROKEN_ROWS:
        log.warning("%d more rows could not be used", len(texts.broken) - MAX_BROKEN_ROWS)
    return texts


def _tokenize(network: Network) -> Callable[[str], list[int]] | None:
    if network.tokenizer is None:
        return None
    return lambda text: list(network.tokenizer(text, add_special_tokens=False).input_ids)
