import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import deltadex

ROOT = Path(deltadex.__file__).parent
SHARED = {"arrays", "errors", "options", "records", "results"}
MAY_IMPORT = {
    "arrays": set(),
    "connections": set(),
    "errors": set(),
    "options": {"errors"},
    "records": {"arrays", "errors"},
    "results": set(),
    "data/rows": {"errors", "results"},
    "store": SHARED,
    "figures": {"errors", "results", "store"},
    "indexer": SHARED | {"store", "data/rows", "connections"},
    "search": {"arrays", "errors", "records", "results", "store"},
    "study": SHARED | {"store", "indexer", "data/rows", "figures"},
    "provenance": SHARED | {"store", "indexer", "data/rows"},
    "data": SHARED | {"store", "indexer", "study", "data/rows"},
    "questions/terminal": SHARED | {"store", "figures", "questions/face", "study"},
    "questions/face": SHARED
    | {"store", "indexer", "search", "study", "questions", "questions/terminal"},
    "questions": SHARED
    | {
        *("store", "indexer", "search", "study", "provenance", "data", "data/rows", "figures"),
        *("questions/face", "questions/terminal", "__version__"),
    },
    "service/page": set(),
    "service/api": {
        *("errors", "options", "records", "results", "__version__"),
        "search",  # records of answers
        *("questions", "questions/face"),
    },
    "service": {
        *("errors", "options", "questions", "questions/face", "questions/terminal"),
        *("service/api", "service/client", "service/assistant"),
    },
    "service/assistant": {"errors", "options", "questions", "questions/face", "__version__"},
    "service/client": {
        *("connections", "errors", "options", "results", "study", "__version__"),
        *("questions", "questions/face"),
    },
    "cli": {"errors", "results", "questions/terminal", "__version__"},
    "__main__": {"cli"},
    "__init__": {"errors", "questions", "questions/face", "results", "service/client"},
}
"""What the modules of a folder, or a file beside them, may import of the others."""

ONE_ROOM_KNOWS = {
    "duckdb": "store",
    "faiss": "store",
    "fsspec": "store/parts.py",
    "ray": "indexer/run.py",
    "qdrant_client": "store/qdrant/server.py",
    "huggingface_hub": ("indexer/hub", "study/network/model_loading.py"),
    "httpx2": ("connections.py", "indexer/hub", "service/client"),
    "click": ("cli.py", "questions", "service/serve.py"),
    "rich": ("questions/terminal",),
    "mcp": "service/assistant",
    "pandas": "results.py",
    "peft": ("questions/demo", "study/network"),
    "transformers": ("questions/demo", "indexer/architecture/in_memory", "study/network"),
    "fastapi": "service/api",
    "starlette": "service/api",
    "uvicorn": "service/api",
    "prometheus_client": "service/api",
    "matplotlib": (
        "figures.py",
        *("questions/map", "questions/lineage/picture.py"),
        *(f"study/{path.parent.name}/picture.py" for path in ROOT.glob("study/*/picture.py")),
    ),
}
MODULES = sorted(
    path
    for name in {key.split("/")[0] for key in MAY_IMPORT}
    for path in (*ROOT.glob(f"{name}.py"), *ROOT.glob(f"{name}/**/*.py"))
)


@cache
def _statements(path):
    """Every import in a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def _imports(path):
    """(absolute first name, room of the package) of every import in a file."""
    package = path.relative_to(ROOT).parent.parts
    for node in _statements(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0], None
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0], None
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            target = (*base, *(node.module or "").split(".")) if node.module else base
            for place in [target] if target else [(alias.name,) for alias in node.names]:
                yield None, _room(place)


def _room(place):
    """The longest key of `MAY_IMPORT` that a module's place begins with."""
    parts = [part.removesuffix(".py") for part in place]
    names = ("/".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in MAY_IMPORT), parts[0])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = _room(path.relative_to(ROOT).parts)

    rooms = {target for _, target in _imports(path) if target} - {room}

    assert rooms <= MAY_IMPORT[room], f"{path.name} imports {rooms - MAY_IMPORT[room]}"


def test_no_class_name_stands_twice():
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in MODULES)
    names = [node.name for tree in trees for node in ast.walk(tree) if type(node) is ast.ClassDef]

    assert sorted(names) == sorted(set(names))


def _imported_files(path):
    """The files of the package that a file imports from, wherever in it; but for the `__init__` of
    a package that it is in."""
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                files = (
                    place / f"{alias.name}.py",
                    place / alias.name / "__init__.py",
                    place.with_suffix(".py"),
                    place / "__init__.py",
                )
                file = next(file for file in files if file.is_file())
                if file.name != "__init__.py" or file.parent not in path.parents:
                    yield file


def test_no_imports_go_in_a_circle():
    graph = {path: set(_imported_files(path)) for path in MODULES}

    list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_each_heavy_library_is_known_in_one_room(path):
    place = path.relative_to(ROOT).as_posix()

    strangers = {
        name
        for name, _ in _imports(path)
        if name in ONE_ROOM_KNOWS and not place.startswith(ONE_ROOM_KNOWS[name])
    }

    assert not strangers
