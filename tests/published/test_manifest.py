import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_families import BASE, RECIPE, family, fill, publish

from deltadex.errors import BadIndex
from deltadex.store.published.manifest import MANIFEST, parse_manifest


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifest")
    publish(fill(folder / "c.duckdb", family(5)), folder / "index")
    return json.loads((folder / "index" / MANIFEST).read_bytes())


def content(document):
    return json.dumps(document).encode()


def test_it_says_what_a_query_needs(document):
    manifest = parse_manifest(content(document))

    assert (manifest.base, manifest.recipe, manifest.models) == (BASE, RECIPE, 5)
    assert manifest.content() == content_sorted(document)
    assert {file.name.split("-")[0] for file in manifest.data_files} == {
        "models",
        "means",
        "removed",
    }


def content_sorted(document):
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


WRONG = {
    "a later format": (("format",), 2, "upgrade"),
    "no format": (("format",), None, "format"),
    "another recipe": (("recipe", "rank"), 3, "recipe_id"),
    "a large recipe": (("recipe", "dim"), 10**9, "dim"),
    "no numbers": (("recipe", "dim"), 0, "dim"),
    "a number as text": (("recipe", "rank"), "3", "rank"),
    "a truth as number": (("serial",), True, "serial"),
    "other totals": (("models",), 6, "models"),
    "a path as a file": (("parts", 0, "name"), "../../etc/passwd", "models"),
    "a hidden file": (("means", "name"), ".bashrc", "means"),
    "a file by another name": (("removed", "sha256"), "0" * 64, "removed"),
    "a negative size": (("parts", 0, "bytes"), -1, "bytes"),
    "too large a file": (("parts", 0, "bytes"), 1 << 40, "bytes"),
    "fewer bytes than vectors": (("parts", 0, "bytes"), 100, "parts"),
    "too many in a part": (("parts", 0, "models"), 1 << 30, "models"),
    "a base that controls a terminal": (("base",), "x\x1b[31m", "base"),
    "a base that turns text round": (("base",), "x\u202e", "base"),
    "a long base": (("base",), "x" * 5000, "base"),
    "another form": (("vectors",), "pickle", "vectors"),
    "no spread": (("scale", "centres", 0, 3), 0.0, "centres"),
    "an endless spread": (("scale", "centres", 0, 3), float("inf"), "centres"),
    "no number": (("scale", "rate"), float("nan"), "rate"),
    "an index of kinds": (("scale", "centres", 0, 0), 7, "centres"),
    "another source": (("scale", "source"), "trust me", "source"),
    "a list for an object": (("shapes",), [], "shapes"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_by_field(document, name):
    path, value, field = WRONG[name]
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    with pytest.raises(BadIndex, match=field):
        parse_manifest(content(changed))


@pytest.mark.parametrize("key", ["recipe", "parts", "scale", "means", "index", "created", "card"])
def test_a_field_that_is_missing_is_named(document, key):
    changed = {name: value for name, value in document.items() if name != key}

    with pytest.raises(BadIndex, match=key):
        parse_manifest(content(changed))


@given(
    data=st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
        max_leaves=9,
    ).map(lambda value: json.dumps(value).encode())
)
def test_anything_else_is_refused_in_one_line(data):
    with pytest.raises(BadIndex) as refused:
        parse_manifest(data)

    assert "\n" not in str(refused.value)
    assert str(refused.value).isprintable()


def test_nesting_without_end_is_refused():
    with pytest.raises(BadIndex):
        parse_manifest(b"[" * 200_000)
