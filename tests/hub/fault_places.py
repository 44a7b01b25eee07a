"""Where in a run a request can go wrong, and whom that may hurt."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fault_family import FULL, MEMBERS
from hub_standin import Fault, StandInHub

Kind = Literal["info", "page", "small", "head", "cdn"]

WEIGHTS = {
    "full": "model.safetensors",
    "sharded": "model-00002-of-00002.safetensors",
    "bin": "pytorch_model.bin",
    "adapter": "adapter_model.safetensors",
}
SMALL = {
    "config": ("full", "/org/full/resolve/"),
    "adapter config": ("adapter", "/adapter_config.json"),
    "shard index": ("sharded", "/model.safetensors.index.json"),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """A request of a run.

    Attributes:
        victims: The models that may suffer; no other must.
        path: In the request's path.
        stored: Repository and name of the file, in place of a path, if storage is asked.
        nth: Which of the requests that fit.
    """

    name: str
    kind: Kind
    victims: tuple[str, ...]
    path: str = ""
    stored: tuple[str, str] | None = None
    query: str = ""
    method: str = ""
    nth: int = 1

    def fault(self, hub: StandInHub, trouble: Mapping[str, Any], *, lasting: bool) -> Fault:
        """A trouble at this place: the first time only, or from then on."""
        path = self.path
        if self.stored is not None:
            repo, file = self.stored
            path = f"/store/{hashlib.sha256(hub.repos[repo].files[file]).hexdigest()}"
        return Fault(
            path=path,
            query=self.query,
            method=self.method,
            where="cdn" if self.kind == "cdn" else "hub",
            nth=self.nth,
            onward=lasting,
            **trouble,
        )


Round = tuple[Place, ...]
"""Places of one kind whose victims differ, so that one run can suffer at all of them."""


def _alone() -> Iterator[Round]:
    """What all models need: the listing and the base."""
    yield (Place(name="model info", kind="info", victims=MEMBERS, path="/api/models/org/base"),)
    for name, query, victims in (
        ("first page", "Aorg%2Fbase&", MEMBERS),
        ("second page", "cursor=", MEMBERS),
        ("a child's page", "Aorg%2Ffull&", ("org/child",)),
    ):
        listing = "/api/models"
        yield (Place(name=name, kind="page", victims=victims, path=listing, query=query),)
    stored = ("org/base", "model.safetensors")
    yield (Place(name="base's tensors", kind="cdn", victims=FULL, stored=stored, nth=2),)


def _of_each_form() -> Iterator[Round]:
    """What each form of model needs for itself."""
    yield tuple(
        Place(name=name, kind="small", victims=(f"org/{form}",), path=path, method="GET")
        for name, (form, path) in SMALL.items()
    )
    repos = {form: f"org/{form}" for form in WEIGHTS}
    yield tuple(
        Place(
            name=f"redirect, {form}",
            kind="head",
            victims=(repo,),
            path=f"/{repo}/resolve/",
            method="HEAD",
        )
        for form, repo in repos.items()
    )
    for nth, part in ((1, "header"), (2, "tensors")):
        yield tuple(
            Place(
                name=f"{part}, {form}",
                kind="cdn",
                victims=(repo,),
                stored=(repo, WEIGHTS[form]),
                nth=nth,
            )
            for form, repo in repos.items()
        )


ROUNDS = (*_of_each_form(), *_alone())
PLACES = tuple(place for together in ROUNDS for place in together)
