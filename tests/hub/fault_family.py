"""One small family on a stand-in Hub, indexed by the command line: one model of each form."""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace

import huggingface_hub
import pytest
from click.testing import CliRunner
from factories import files_of, finetune, lora_files, make_bert, make_checkpoint
from hub_standin import StandInHub

from deltadex.cli import main
from deltadex.indexer.hub import LocalBudget, files
from deltadex.indexer.hub.session import Patience, default_session
from deltadex.store import Catalog

TOKEN = "hf_TOPSECRET"
BOUND_S = 30.0
"""Of one run, whatever the network does; undisturbed it takes well below a second."""

PATIENCE = Patience(
    connect_s=0.5,
    read_s=0.7,
    call_s=3.0,
    bytes_per_second=1e8,
    rate_limit_s=1.5,
    tries=4,
    first_pause_s=0.01,
    longest_pause_s=0.05,
)
FULL = ("org/full", "org/sharded", "org/bin", "org/other", "org/child")
MEMBERS = (*FULL, "org/adapter")
LOGGERS = ("httpx2", "httpcore2", "deltadex")
_LISTING = re.compile(r"^Error: the family of org/base cannot be listed: ([a-z-]+): ", re.MULTILINE)
_LEFT_OUT = re.compile(r"^the children of \S+ are left out: ([a-z-]+): ", re.MULTILINE)
_BASE = re.compile(r"^base org/base: (?:([a-z-]+): )?")


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run left behind: "indexed" or a reason code, why not, and vectors, by model."""

    exit_code: int
    stdout: str
    stderr: str
    log: str
    file: bytes
    seconds: float
    codes: dict[str, str]
    reasons: dict[str, str]
    vectors: dict[str, bytes]

    @property
    def stopped(self):
        match = _LISTING.search(self.stderr) if self.exit_code == 3 else None
        return match[1] if match else None

    @property
    def left_out(self):
        """Why the children of a model were left out."""
        match = _LEFT_OUT.search(self.stderr)
        assert match is not None, self.stderr
        return match[1]

    def own_code(self, id):
        """A model's code; that of its base where the base is what fails."""
        code = self.codes[id]
        match = _BASE.match(self.reasons[id]) if code == "needs-base" else None
        return match[1] or code if match else code


def add_family(hub, folder):
    """The base, a model of each form, and one more that nothing happens to."""
    hub.page_size = 3
    base = make_bert(folder / "base", seed=0, width=64)

    def full(name, seed, parent="org/base", **options):
        tuned = finetune(base, seed=seed)
        made = make_checkpoint(folder / name, tuned, config=folder / "base", **options)
        hub.add(f"org/{name}", files_of(made), parents=(parent,))

    hub.add("org/base", files_of(folder / "base"))
    full("full", 1)
    full("sharded", 2, shards=2)
    full("bin", 3, form="bin")
    full("other", 4)
    full("child", 5, "org/full")
    hub.add("org/adapter", lora_files(base), parents=("org/base",), relation="adapter")


@contextmanager
def impatient_session(hub, cache):
    """The session that commands work with asks this Hub, with a token, and waits little; it reads
    so little ahead that an adapter takes two requests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", TOKEN)
        patch.setattr(files, "ALL_TENSORS", replace(files.ALL_TENSORS, ahead=64 << 10))
        default_session.cache_clear()
        session = default_session()
        session.endpoint, session.cache_dir, session.patience = hub.endpoint, cache, PATIENCE
        try:
            yield
        finally:
            default_session.cache_clear()
            huggingface_hub.close_session()


@contextmanager
def family_hub(folder):
    """A stand-in Hub with the family, that commands ask."""
    with StandInHub() as hub, impatient_session(hub, folder / "cache"):
        add_family(hub, folder)
        yield hub


def run(folder, *arguments):
    """`deltadex ARGUMENTS` on a new catalog in `folder`; nothing is known of the Hub's limits."""
    default_session().budget = LocalBudget()
    db = folder / "c.duckdb"
    start = time.monotonic()
    with _logged() as lines:
        done = CliRunner().invoke(main, [*arguments, "--db", str(db), "--json"])
    seconds = time.monotonic() - start
    codes, reasons, vectors = {}, {}, {}
    if db.exists():
        with Catalog.open(db, read_only=True, create=False) as catalog:
            for row in catalog.models():
                codes[row.id] = "indexed" if row.status == "indexed" else str(row.code)
                reasons[row.id] = str(row.reason)
            if "indexed" in codes.values():
                (base,) = catalog.bases()
                ids, stored = catalog.family(base, catalog.find_recipe(None, base)).by_id()
                vectors = {id: vector.tobytes() for id, vector in zip(ids, stored, strict=True)}
    content = b"".join(p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file())
    return Run(
        exit_code=done.exit_code,
        stdout=done.stdout,
        stderr=done.stderr,
        log="\n".join(lines),
        file=content,
        seconds=seconds,
        codes=codes,
        reasons=reasons,
        vectors=vectors,
    )


@contextmanager
def _logged():
    """Every line that the client, its transport, and we ourselves log meanwhile."""
    lines, handler = [], logging.Handler(logging.DEBUG)
    handler.emit = lambda record: lines.append(record.getMessage())
    loggers = {logger: logger.level for logger in map(logging.getLogger, LOGGERS)}
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        for logger, level in loggers.items():
            logger.removeHandler(handler)
            logger.setLevel(level)
