"""A service that answers as the API's contract says, from a family made up here."""

import json
import math
import random
import re
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

from deltadex.service.api.middleware import SECURITY_HEADERS

TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
ROLES = ("q", "k", "v", "o", "up", "down")
LAYERS = 4
HOSTILE = '</script><img src=x onerror="window.hacked=1">'


@dataclass
class MadeUp:
    """Models around one middle a dataset; the last tenth unlabelled, every third an adapter.

    Attributes:
        broken: Endpoints that answer 500.
        slow: Endpoints that answer 202 the first time they are asked.
        underway: Endpoints that answer 202 as long as they are here, with what is known of the
            job, whose id is the endpoint's name.
    """

    models: int = 60
    datasets: tuple = ("imdb", "sst2", "agnews", "trec", "mpqa")
    base: str = "base-model"
    names: tuple = ()
    broken: set = field(default_factory=set)
    slow: set = field(default_factory=lambda: {"clusters"})
    underway: dict = field(default_factory=dict)
    opening: dict | None = None

    def __post_init__(self):
        random.seed(0)
        self.rows = []
        for i in range(self.models):
            at = i % len(self.datasets)
            angle = 2 * math.pi * at / len(self.datasets)
            spread = 0.25 if self.models < 1000 else 0.6
            dataset = None if i >= 0.9 * self.models else self.datasets[at]
            self.rows.append(
                {
                    "model": self.names[i] if i < len(self.names) else f"lab{i % 7}/m{i:06d}",
                    "x": 3 * math.cos(angle) + random.gauss(0, spread),
                    "y": 2 * math.sin(angle) + random.gauss(0, spread),
                    "dataset": dataset,
                    "author": self.names[0] if self.names and i == 0 else f"lab{i % 7}",
                    "kind": "adapter" if i % 3 == 2 else "full",
                    "month": f"2024-0{1 + i % 4}",
                    "downloads": None if i % 5 == 4 else int(10 ** random.uniform(0, 6)),
                    "status": "indexed",
                    "base": self.base,
                    "source": "hub",
                }
            )
        self.requests = Counter()
        self.sent = []

    def answer(self, path, query):
        """Status and document of one request under /api/v1."""
        self.requests[path] += 1
        head, _, rest = path.partition("/")
        if head in ("families", "jobs") and rest:
            head = rest.rpartition("/")[2]
        if head in self.broken:
            return 500, {"type": "about:blank", "title": "Internal", "detail": "the index is torn"}
        if head in self.slow and self.requests[path] == 1:
            return 202, {"status": "computing", "retry_after_s": 0.2}
        if head in self.underway:
            known = {"status": "computing", "retry_after_s": 0.2, "job": head}
            return 202, known | self.underway[head]
        if head == "models" and rest:
            return self.model(rest)
        if head == "lineage":
            return self.lineage()
        return getattr(self, head)(query)

    def families(self, _):
        recipes = [
            {"id": f"{name}-1", "name": name, "rank": 16, "dim": 64, "models": self.models}
            for name in ("sketch", "mean-factors")
        ]
        family = {
            "base": self.base, "models": self.models + 3, "indexed": self.models,
            "labelled": self.models, "datasets": len(self.datasets), "recipes": recipes,
        }  # fmt: skip
        can = {"writable": False, "umap": True, "version": "0"}
        can |= {"opening": self.opening, "takes": {"adapter": 1 << 20, "data": 1 << 16}}
        return 200, {"families": [family], **can}

    def map(self, query):
        document = {
            "base": self.base, "recipe": "sketch", "explained": None, "seed": 0,
            "layout": "tsne" if query.get("layout", "auto") == "auto" else query["layout"],
            "models": [row["model"] for row in self.rows],
            "x": [row["x"] for row in self.rows], "y": [row["y"] for row in self.rows],
            "downloads": [row["downloads"] for row in self.rows],
        }  # fmt: skip
        for name in ("dataset", "author", "kind", "month"):
            column = [row[name] for row in self.rows]
            names = sorted({value for value in column if value is not None})
            place = {value: i for i, value in enumerate(names)}
            document[name] = [None if value is None else place[value] for value in column]
            document[f"{name}s"] = names
        unlabelled = [0 if row["dataset"] is None else None for row in self.rows]
        return 200, document | {"word": unlabelled, "words": ["film, actor, scene"]}

    def models_(self, query):
        rows, where = self.rows, query.get("where", "")
        for test in filter(None, where.split(" AND ")):
            match = re.fullmatch(r"(\w+) (=|>=) '?([^']*)'?", test)
            if match is None:
                detail = f"cannot read {test!r}"
                return 422, {"title": "Bad filter", "detail": detail, "code": "bad-filter"}
            name, sign, value = match.groups()
            rows = [
                row
                for row in rows
                if (str(row[name]) == value if sign == "=" else (row[name] or 0) >= float(value))
            ]
        for name in ("dataset", "author", "kind", "status"):
            if name in query:
                rows = [row for row in rows if row[name] == query[name]]
        q = query.get("q", "").lower()
        rows = [
            row for row in rows if q in f"{row['model']} {row['dataset']} {row['author']}".lower()
        ]
        key = query.get("sort", "model")
        rows = sorted(rows, key=lambda row: (row[key] is None, row[key]))
        if query.get("order") == "desc":
            rows = rows[::-1]
        offset, limit = int(query.get("offset", 0)), int(query.get("limit", 50))
        page = {"total": len(rows), "limit": limit, "offset": offset}
        return 200, {"models": rows[offset : offset + limit], **page}

    def facets(self, query):
        passing = self.models_(query | {"limit": "1000000"})[1]["models"]
        names = ("dataset", "author", "kind", "status")
        counts = {name: Counter(row[name] for row in passing).most_common() for name in names}
        facets = [
            {"facet": name, "value": value, "models": n}
            for name in names
            for value, n in counts[name]
        ]
        return 200, {"total": len(passing), "facets": facets, "others": dict.fromkeys(names, 0)}

    def find(self, model):
        return next((row for row in self.rows if row["model"] == model), None)

    def model(self, name):
        row = self.find(name)
        if row is None:
            detail = f"no model {name}"
            return 404, {"title": "Not found", "detail": detail, "code": "unknown-model"}
        slots = [
            {
                "slot": f"encoder.{layer}.{role}", "shape": [8, 8], "fro_norm": 0.5,
                "relative_norm": 0.004 * (1 + layer) + 0.001 * ROLES.index(role),
                "sigma": [1.0], "energy": 0.9, "stable_rank": 1.0 + layer, "noise_floor": 0.0,
            }
            for layer in range(LAYERS)
            for role in ROLES
        ]  # fmt: skip
        facts = {"words": ["film", "actor", "scene"], "license": "mit"}
        facts |= {"task": "text-classification", "label_source": "card"}
        return 200, {**row, **facts, "created_at": "2024-05-06T07:08:09Z", "slots": slots}

    def search(self, query):
        """Two models of the first data set for a text of films; nothing for others."""
        asked = sorted({"film", "review"} & set(query["text"].lower().split()))
        ranked = [row for row in self.rows if row["dataset"] == self.datasets[0]] if asked else []
        neighbours = [
            {"rank": n + 1, "model": row["model"], "base": self.base, "words": ["film", "review"],
             "verdict": ("matches", "perhaps", "matches nothing")[min(n, 2)],
             "by_chance": 0.01, "score": 1.0, "probability": None, "dataset": row["dataset"],
             "author": row["author"], "run": None}
            for n, row in enumerate(ranked[: int(query["k"])])
        ]  # fmt: skip
        return 200, {
            "text": query["text"], "verdict": "matches" if asked else "matches nothing",
            "asked": asked, "unknown": [], "compared": self.models, "neighbours": neighbours,
            "families": [{"base": self.base, "compared": self.models, "asked": asked}],
            "left_out": [], "meaning": "",
        }  # fmt: skip

    def similar(self, query):
        me = self.find(query["model"])
        assert me is not None
        status, passing = self.models_({k: v for k, v in query.items() if k in ("dataset", "author", "where")} | {"limit": "1000000"})  # fmt: skip # noqa: E501
        if status != 200:
            return status, passing
        near = [
            (math.hypot(row["x"] - me["x"], row["y"] - me["y"]), row)
            for row in passing["models"]
            if row is not me
        ]
        near.sort(key=lambda pair: pair[0])
        neighbours = [
            {"rank": n + 1, "model": row["model"], "z": 12 * math.exp(-3 * d) - 0.5,
             "fdr": min(1.0, 0.002 * (n + 1) ** 2), "probability": 0.98 / (n + 1),
             "verdict": verdict_of(n),
             "score": math.exp(-d), "cosine": 0.5, "dataset": row["dataset"],
             "author": row["author"], "run": None, "base": self.base}
            for n, (d, row) in enumerate(near[: int(query.get("k", 10))])
        ]  # fmt: skip
        return 200, {
            "query": me, "recipe": "sketch", "verdict": verdict_of(0), "compared": len(near),
            "calibration": {"source": "labelled models of the family", "datasets": 5,
                            "queries": 54, "verdict_from": 0.72},
            "neighbours": neighbours,
            "suspects": [],
        }  # fmt: skip

    def dropped(self, name, body):
        """What is answered to a file that is sent: the neighbours of the first model."""
        self.sent.append(body)
        if b"broken" in body:
            detail = "the update of encoder.0.q cannot be read"
            return 422, {"title": "Refused", "detail": detail, "code": "unreadable"}
        if name in self.underway:
            return self.answer(name, {})
        query = {"n_texts": 24} if name == "trained-on" else {}
        found = self.similar({"model": self.rows[0]["model"], "k": "100"})[1]
        return 200, found | {"query": query}

    def explain(self, query):
        share = 1 / (LAYERS * len(ROLES))
        parts = lambda names: [  # noqa: E731
            {"name": n, "contribution": 0.4 / len(names), "share": 1 / len(names)} for n in names
        ]
        slots = [
            {"slot": f"encoder.{layer}.{role}", "contribution": 0.4 * share, "share": share,
             "blocks": {"in": 0.2 * share, "out": 0.2 * share}, "relative_norms": [0.1, 0.1]}
            for layer in range(LAYERS)
            for role in ROLES
        ]  # fmt: skip
        return 200, {
            "query": query["model"], "model": query["other"], "similarity": 0.4,
            "by_role": parts(ROLES), "by_layer": parts([f"encoder.{i}" for i in range(LAYERS)]),
            "by_block": parts(["in", "out"]), "slots": slots,
            "only_query": ["encoder.9.q"], "only_model": [],
        }  # fmt: skip

    def evaluation(self, query):
        n = self.models // len(self.datasets)
        purity = {d: {"n": n, "purity": 0.95 - 0.1 * i} for i, d in enumerate(self.datasets)}
        size = len(self.datasets)
        counts = [
            [n - 2 if i == j else int(j == (i + 1) % size) for j in range(size)] + [1]
            for i in range(size)
        ]
        return 200, {
            "models": self.models, "labelled": self.models, "queries": self.models,
            "datasets": size, "micro": 0.75, "macro": 0.74, "chance": 0.2, "nn1": 0.8, "map": 0.7,
            "ci95": [0.7, 0.8], "by_dataset": purity, "exclude": query.get("exclude"),
            "p_value": 0.004, "sampled_queries": None, "singletons": 0, "dropped": 0,
            **self._few_datasets(query.get("exclude") == "run"),
            "confusion": {"datasets": list(self.datasets), "counts": counts},
        }  # fmt: skip

    def _few_datasets(self, wanted):
        """What a sample of queries of few datasets changes in an evaluation."""
        reason = {"ci95": None, "ci95_reason": "too few to tell: 4 datasets have siblings"}
        return {**reason, "queries": 7, "sampled_queries": 7} if wanted else {}

    def clusters(self, _):
        clusters = []
        for at, dataset in enumerate(self.datasets):
            members = [row for i, row in enumerate(self.rows) if i % len(self.datasets) == at]
            labelled = sum(row["dataset"] is not None for row in members)
            authors = Counter(row["author"] for row in members).most_common(5)
            clusters.append(
                {
                    "cluster": at, "name": f"about {dataset}", "size": len(members),
                    "datasets": [{"dataset": dataset, "models": labelled}],
                    "authors": [{"author": a, "models": c} for a, c in authors],
                    "words": ["film", "review"], "terms": [dataset],
                    "models": [row["model"] for row in members],
                }
            )  # fmt: skip
        unlabelled = [row for row in self.rows if row["dataset"] is None]
        curve = [
            {"confidence": c / 10, "precision": 0.5 + c / 20, "coverage": 1 - c / 12}
            for c in range(11)
        ]
        return 200, {
            "models": self.models, "clusters": clusters, "noise": [], "ari": 0.91, "nmi": 0.88,
            "silhouette": {"labels": 0.2, "clusters": 0.3}, "abstained": 2,
            "suggestions": [
                {"model": row["model"], "dataset": self.datasets[0], "confidence": 0.97,
                 "fdr": 0.03, "verdict": "perhaps", "hint": False}
                for row in unlabelled[:4]
            ],
            "hints": [
                {"model": row["model"], "dataset": self.datasets[1], "confidence": 0.6,
                 "fdr": 0.4, "verdict": "perhaps", "hint": True}
                for row in unlabelled[4:6]
            ],
            "calibration": {"precision": 0.96, "coverage": 0.7, "threshold": 0.8, "target": 0.95,
                            "models": 40, "curve": curve},
        }  # fmt: skip

    def lineage(self):
        """Chains of three: every model but each third was trained from the one before."""
        names = [row["model"] for row in self.rows]
        edges = [
            {
                "parent": names[at - 1] if at % 3 else self.base, "child": name,
                "kind": "fine-tune", "probability": 0.9, "weight": None, "explained": 0.5,
                "cosine": 0.7, "words": ["film", "review"],
            }
            for at, name in enumerate(names)
        ]  # fmt: skip
        edges[5] |= {"kind": "merge", "weight": 0.6}
        edges.insert(6, edges[5] | {"parent": names[0], "weight": 0.4})
        note = f"card says base; weights say fine-tune of {names[0]}"
        claim = {"model": names[1], "card": self.base, "weights": [names[0]], "says": "base"}
        return 200, {
            "base": self.base, "recipe": "sketch", "models": self.models, "level": 0.3,
            "without_parent": sum(edge["parent"] == self.base for edge in edges), "edges": edges,
            "claims": [claim | {"note": note}], "not_compared": [],
            "times": {"known": 0, "future": 0},
        }  # fmt: skip

    def failures(self, _):
        bad = [{"model": f"broken/{i}", "base": self.base, "reason": f"shard {i} of {HOSTILE}"}
               for i in range(2)]  # fmt: skip
        meaning = "a file of the model cannot be read"
        return 200, {"failures": [
            {"code": "unreadable", "status": "failed", "meaning": meaning, "models": bad},
            {"code": "wrong-base", "status": "skipped", "meaning": "made from another base",
             "models": bad[:1]},
        ]}  # fmt: skip


def verdict_of(place):
    """Two neighbours likely share the query's data, three perhaps do."""
    likely, perhaps = 2, 5
    if place < likely:
        return "likely the same data"
    return "perhaps" if place < perhaps else "no model stands out"


def plain(page, selector):
    """The text of an element, its unbreakable spaces as plain ones."""
    return page.locator(selector).inner_text().replace("\u00a0", " ")


def until(page, condition, seconds=15.0):
    """Wait for a condition of the page; its policy forbids the waiting that Playwright has."""
    last = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < last, f"still not: {condition}"
        page.wait_for_timeout(40)


@contextmanager
def served(family):
    """The address of the page over this family, while the block runs."""
    page = files("deltadex.service") / "page"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            parts = urlsplit(self.path)
            if parts.path.startswith("/api/v1/"):
                query = {k: v[0] for k, v in parse_qs(parts.query).items()}
                name = unquote(parts.path.removeprefix("/api/v1/"))
                status, document = family.answer("models_" if name == "models" else name, query)
                self.reply(status, "application/json", json.dumps(document).encode())
                return
            file = page / (parts.path.removeprefix("/static/").strip("/") or "index.html")
            if "/" in file.name or not file.is_file():
                self.reply(404, "application/json", b"{}")
            else:
                self.reply(200, TYPES[file.name.rsplit(".")[-1]], file.read_bytes())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, document = family.dropped(self.path.rpartition("/")[2], body)
            self.reply(status, "application/json", json.dumps(document).encode())

        def do_DELETE(self):
            job = self.path.rpartition("/")[2]
            family.underway.pop(job, None)
            self.reply(200, "application/json", b"{}")

        def reply(self, status, kind, body):
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            for name, value in SECURITY_HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
