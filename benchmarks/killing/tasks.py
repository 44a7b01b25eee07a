"""What is killed: commands, the catalogs that they start from, and a family for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import duckdb
from soak import write_family

from deltadex.store import Catalog

from .child import OPEN, PREPARE

N_MODELS = 8
N_BEFORE = 4
"""Models that are in the catalog already, where some are added."""

DB = "c.duckdb"
TARGET = "{folder}/copy.duckdb"

INDEX = ("index", "base", "models", "--labels", "models/labels.csv", "--json")

Step = Sequence[str]
Build = Callable[[Sequence[Step], Path, Path], object]

INDEX_SOME = (*INDEX, "--limit", str(N_BEFORE))
BUILT: Mapping[str, Sequence[Step]] = {
    "half": [INDEX_SOME],
    "whole": [INDEX],
    "late": [INDEX_SOME, (PREPARE,), INDEX],
}
"""Catalogs that tasks start from, and the steps that make them."""

STARTS = ("empty", *BUILT, "old")
"""All of them: nothing in it; made by steps; as the first version kept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Commands one after another, and what they start from.

    Attributes:
        start: Name of the catalog that is there before; None for none.
        steps: `{folder}` stands for the catalog's folder.
        again: What continues them; None for the same.
        small_log: DuckDB folds its log into the file all the time.
        copies: The outcome is a copy of the catalog.
        killed: Who is: the worker, one that is let in by a holder, or the holder.
    """

    name: str
    start: str | None
    steps: Sequence[Step]
    again: Sequence[Step] | None = None
    small_log: bool = False
    copies: bool = False
    killed: Literal["worker", "guest", "holder"] = "worker"

    @property
    def removable(self) -> set[str]:
        return {step[1] for step in self.steps if step[0] == "rm"}

    def steps_in(self, folder: Path, *, again: bool = False) -> list[list[str]]:
        """The steps for a catalog in that folder."""
        steps = self.again if again and self.again is not None else self.steps
        return [[word.format(folder=folder) for word in step] for step in steps]


def model(number: int) -> str:
    """A model's id."""
    return f"m{number:05d}"


def step_adding(*numbers: int) -> Step:
    """The step that adds some models."""
    folders = [f"models/{model(n)}" for n in numbers]
    return ("add", *folders, "--base", "base", "--labels", "models/labels.csv")


def _rm(*numbers: int) -> list[Step]:
    return [("rm", model(n)) for n in numbers]


TASKS: Sequence[Task] = (
    Task(name="index", start=None, steps=[INDEX]),
    Task(name="index, small log", start=None, steps=[INDEX], small_log=True),
    Task(name="index as guest", start="empty", steps=[INDEX], killed="guest"),
    Task(name="index, holder dies", start="empty", steps=[INDEX], killed="holder"),
    Task(name="add", start="half", steps=[step_adding(4, 5), step_adding(6, 7)]),
    Task(name="rm", start="whole", steps=_rm(1, 5, 2, 7), small_log=True),
    Task(name="migrate", start="old", steps=[(OPEN,)]),
    Task(
        name="catch up",
        start="late",
        steps=[(PREPARE,), *_rm(1), (PREPARE,), *_rm(4, 7), (PREPARE,)],
    ),
    Task(
        name="backup",
        start="whole",
        steps=[("backup", TARGET)],
        again=[("backup", TARGET, "--force")],
        copies=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A family on the disk, and folders of catalogs to start from."""

    family: Path
    starts: Mapping[str, Path]

    def begin(self, task: Task, folder: Path) -> Path:
        """The catalog of a new folder, as the task finds it."""
        if task.start is None:
            folder.mkdir(parents=True)
        else:
            shutil.copytree(self.starts[task.start], folder)
        return folder / DB


def prepare_family(folder: Path, build: Build, starts: Collection[str] = STARTS) -> Prepared:
    """A family of tiny models and the catalogs that tasks start from.

    Args:
        build: Does steps on a catalog, undisturbed.
        starts: Names of the catalogs that are wanted.
    """
    family = folder / "family"
    write_family(family, N_MODELS)
    lines = [f"{model(n)},d{n // 4},author{n % 3},r{n}" for n in range(N_MODELS)]
    labels = "\n".join(["model,dataset,author,run", *lines])
    (family / "models" / "labels.csv").write_text(labels + "\n", encoding="utf-8")
    wanted = {*starts, *(["whole"] if "old" in starts else [])}
    paths = {name: folder / name for name in STARTS if name in wanted}
    for name, path in paths.items():
        path.mkdir()
        if name in BUILT:
            build(BUILT[name], family, path / DB)
        elif name == "old":
            write_first_schema(paths["whole"] / DB, path / DB)
        else:
            Catalog.open(path / DB).close()
    return Prepared(family=family, starts=paths)


def write_first_schema(catalog: Path, target: Path) -> None:
    """A catalog as the first version kept it, with the models of one of today."""
    with duckdb.connect(str(target)) as connection:
        connection.execute(import_module("deltadex.store.opening").migrations()[0])
        connection.execute("UPDATE meta SET schema_version = 1")
        connection.execute(f"ATTACH '{catalog}' AS today (READ_ONLY)")
        vectors = connection.execute("SELECT vectors FROM today.recipes").fetchall()
        connection.execute(
            "INSERT INTO families SELECT * EXCLUDE (license, tokenizer) FROM today.families"
        )
        connection.execute(
            "INSERT INTO models "
            "SELECT * EXCLUDE (verified, layers, vocabulary, dtype) FROM today.models"
        )
        connection.execute("INSERT INTO slots SELECT * EXCLUDE (zero_share) FROM today.slots")
        connection.execute("INSERT INTO recipes SELECT * EXCLUDE (share) FROM today.recipes")
        for (name,) in vectors:
            connection.execute(f"CREATE TABLE {name} AS FROM today.{name} LIMIT 0")
            connection.execute(f"ALTER TABLE {name} ADD PRIMARY KEY (model)")
            connection.execute(f"INSERT INTO {name} FROM today.{name}")
        last = connection.execute("SELECT max(key) FROM models").fetchall()[0][0]
        connection.execute(f"CREATE OR REPLACE SEQUENCE model_keys START {last + 1}")
        view = connection.execute(
            "SELECT sql FROM duckdb_views() WHERE view_name = 'fingerprints' "
            "AND database_name = 'today'"
        ).fetchall()
        for (sql,) in view:
            connection.execute(sql.replace("today.", ""))
