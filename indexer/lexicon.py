"""Words of a base, and the states that it has for each alone; what an update answers to among them.

An update ΔW that was trained on texts answers more strongly to the states of their words than to
others: r_w = Σ log(|ΔW x_w| / mean over words), over the matrices that read the state x_w, which is
centred over words and of unit length (docs/words.md). ΔW is taken by its leading factors.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..arrays import Int8
from ..errors import StoreFull
from ..store import STEPS, Catalog, Lexicon, tokenizer_hash
from ..store.files import lexicon_file, make_folder
from .base import Base
from .delta import Factors, MatrixUpdate
from .family import find_member

log = logging.getLogger(__name__)

LEAST = 1e-6
"""|ΔW x| beside its mean, of a word to which a matrix does not answer."""


@dataclass(frozen=True, slots=True, eq=False)
class BaseLexicon:
    """Words of a base, and what its layers read of each.

    Attributes:
        kept: What the catalog keeps of it.
        states: By slot as text, the states of the words that its matrix reads: (words, width),
            float32.
        sha256: By which the catalog knows it; empty until it is kept there.
    """

    kept: Lexicon
    states: Mapping[str, torch.Tensor]
    sha256: str = ""

    def save(self, path: Path, made_of: str) -> None:
        """Write the states, in half precision, those of several slots once. `made_of`: tells the
        base's files from others."""
        distinct = list({id(states): states for states in self.states.values()}.values())
        places = {
            slot: next(i for i, s in enumerate(distinct) if s is states)
            for slot, states in self.states.items()
        }
        arrays: dict[str, Any] = {str(i): s.half().numpy() for i, s in enumerate(distinct)}
        with path.open("wb") as file:
            np.savez(
                file,
                made_of=made_of,
                places=json.dumps(places),
                lexicon=self.kept.to_bytes(),
                **arrays,
            )

    @classmethod
    def load(cls, path: Path, made_of: str) -> BaseLexicon | None:
        """That of these files of a base; None where the file is missing or another's."""
        try:
            with np.load(path) as file:
                if made_of != str(file["made_of"]):
                    return None
                kept = Lexicon.from_bytes(bytes(file["lexicon"]))
                places = json.loads(str(file["places"]))
                arrays = {i: torch.from_numpy(file[str(i)]).float() for i in set(places.values())}
            return cls(kept, {slot: arrays[i] for slot, i in places.items()})
        # whatever is wrong with a file that can be made again
        except Exception:
            return None

    def answers(self, update: MatrixUpdate, factors: Factors) -> torch.Tensor | None:
        """How strongly one matrix answers to each word, (words,); None where it does not read
        their states, or only some of their entries."""
        states = self.states.get(str(update.slot))
        if states is None or update.cut_axis == 1 or not len(factors.sigma):
            return None
        if states.shape[1] != factors.v.shape[0]:
            return None
        strengths = torch.linalg.norm((states @ factors.v) * factors.sigma, dim=1)
        answers: torch.Tensor = strengths / strengths.mean().clamp_min(torch.finfo().tiny) + LEAST
        return answers.log()


GoOn = Callable[[], None]
"""Raises `Cancelled` where a run is being stopped."""

MakeLexicon = Callable[[str, bytes, str, GoOn], BaseLexicon | None]
"""From a base's folder, its tokenizer's JSON, and a device; None where it cannot be run."""


def make_lexicon(
    catalog: Catalog, base: Base, device: str, make: MakeLexicon
) -> BaseLexicon | None:
    """That of the base's folder; None where its words cannot be asked."""
    found, tokenizer = kept_lexicon(catalog, base), base.tokenizer()
    if found is None and tokenizer is not None and base.folder is not None:
        base.stop_if_cancelled()
        log.info("reading what %s answers to single words", base.name)
        found = make(str(base.folder), tokenizer, device, base.stop_if_cancelled)
        base.stop_if_cancelled()
        if found is not None:
            path = lexicon_file(catalog.path, base.name)
            with suppress(StoreFull, OSError):
                make_folder(path.parent)
                found.save(path, _made_of(base))
    if found is None or not found.states:
        return None
    return replace(found, sha256=catalog.footprints.save_lexicon(found.kept.to_bytes()))


def may_answer(catalog: Catalog, base: Base) -> bool:
    """Whether a run would ask updates by words, as far as is known without running the base."""
    found = kept_lexicon(catalog, base)
    if found is not None:
        return bool(found.states)
    return base.folder is not None and base.tokenizer() is not None


def kept_lexicon(catalog: Catalog, base: Base) -> BaseLexicon | None:
    """That of these files of the base, where one was made; without states where its words have no
    meaning."""
    if base.folder is None:
        return None
    return BaseLexicon.load(lexicon_file(catalog.path, base.name), _made_of(base))


def known_lexicon(catalog: Catalog, base: Base) -> BaseLexicon | None:
    """The one that stored responses are of, where it is kept here."""
    found = kept_lexicon(catalog, base)
    return None if found is None else replace(found, sha256=tokenizer_hash(found.kept.to_bytes()))


def _made_of(base: Base) -> str:
    return find_member(str(base.folder), base.name).record.signature


def stored_responses(total: torch.Tensor) -> Int8[np.ndarray, " words"]:
    """The answers of all matrices of a model, added up, beside their mean, in steps of a standard
    deviation; empty where all words are answered alike."""
    responses = total.numpy()
    spread = float(responses.std())
    if not np.isfinite(spread) or spread == 0:
        return np.zeros(0, np.int8)
    scaled = STEPS * (responses - responses.mean()) / spread
    return np.asarray(np.clip(np.round(scaled), -127, 127), dtype=np.int8)


class LexiconOnce:
    """A lexicon that is made when the first model asks for it; without `make` there is none. Safe
    between threads."""

    def __init__(self, make: Callable[[], BaseLexicon | None] | None = None) -> None:
        self.may_be = make is not None
        self._make = make
        self._made: BaseLexicon | None = None
        self._lock = threading.Lock()

    def get(self) -> BaseLexicon | None:
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
        return self._made
