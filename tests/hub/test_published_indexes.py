"""Indexes on a web server and on the Hub: fetched by ranges, uploaded in one commit."""

import json
from dataclasses import replace

import pytest
from hub_standin import Fault
from published_families import family, fill, publish

import deltadex as dx
from deltadex.errors import BadIndex
from deltadex.indexer.hub import published
from deltadex.indexer.hub import session as session_module

# how the client's own upload calls its HTTP library
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

TARGET = "hf://datasets/someone/gpt2-index"


@pytest.fixture
def env(hub, session, monkeypatch):
    """The stand-in is the Hub that the environment names."""
    monkeypatch.setattr(published, "default_session", lambda: session)
    anonymous = session_module.HubSession
    monkeypatch.setattr(
        published, "HubSession", lambda token: anonymous(token=token, patience=session.patience)
    )
    # the stand-in speaks the older of the client's two protocols
    monkeypatch.setattr("huggingface_hub._commit_api.is_xet_available", lambda: False)
    return hub


@pytest.fixture
def db(tmp_path):
    with dx.open(fill(tmp_path / "c.duckdb", family(6))) as opened:
        yield opened


def test_an_index_is_published_attached_and_published_again_without_its_token(env, db, tmp_path):
    first = db.publish(TARGET)[0]
    repo = env.datasets["someone/gpt2-index"]
    with dx.open(tmp_path / "mine.duckdb") as mine:
        attached = mine.attach(TARGET)[0]
        near = mine.find_similar("author-0/model-0", k=9)
        nothing = db.publish(TARGET)[0]
        before = len(env.log)
        db.remove("author-0/model-3")
        more = db.publish(TARGET, exclude=["author-1/model-1"])[0]
        uploaded = [r.path for r in env.log[before:] if r.method == "PUT"]
        mine.attached.refresh()
        left = {hit["model"] for hit in mine.find_similar("author-0/model-0", k=9)}

    assert first["commit"]
    assert first["uploaded_bytes"] > first["bytes"] * 0.9
    assert (attached["name"], attached["models"], len(near)) == ("gpt2-index", 6, 5)
    assert (nothing["changed"], nothing["uploaded_bytes"]) == (False, 0)
    assert sum(r.method == "POST" and "/commit/" in r.path for r in env.log) == 2
    assert len(uploaded) == 1  # a part
    assert more["models"] == 4
    assert left == {"author-2/model-2", "author-1/model-4", "author-2/model-5"}
    document = json.loads(repo.files["deltadex-index.json"])
    files = document["parts"]
    assert set(repo.files) == {"README.md", "deltadex-index.json", *(f["name"] for f in files)}
    content = b"".join(repo.files.values())
    assert b"model-1" not in content
    assert b"TOPSECRET" not in content
    assert not any("authorization" in r.headers for r in env.log if r.where != "hub")


def test_a_commit_that_came_between_is_not_overwritten(env, db, monkeypatch):
    db.publish(TARGET)
    db.remove("author-0/model-3")
    upload = published.HfApi.create_commit

    def late(*arguments, **options):
        env.datasets["someone/gpt2-index"].sha = "f" * 40
        return upload(*arguments, **options)

    monkeypatch.setattr(published.HfApi, "create_commit", late)
    with pytest.raises(BadIndex, match="another commit came first"):
        db.publish(TARGET)


def test_an_upload_without_a_token_and_a_data_set_that_is_not_there_are_refused_in_one_line(
    env, db, session
):
    session.token = False
    session.__dict__.pop("headers", None)

    with pytest.raises(BadIndex, match="set HF_TOKEN") as error:
        db.publish(TARGET)
    assert "\n" not in str(error.value)
    with pytest.raises(BadIndex, match="no such"):
        db.attach("hf://datasets/nobody/nothing")


@pytest.fixture
def served(env, tmp_path):
    """An index on the stranger's server, as any web server has it."""
    publish(fill(tmp_path / "theirs.duckdb", family(6)), tmp_path / "index")
    env.pages = {f"/some/index/{p.name}": p.read_bytes() for p in (tmp_path / "index").iterdir()}
    return f"{env.address('stranger')}/some/index"


def test_an_index_is_fetched_from_a_web_server_without_a_token(served, env, tmp_path):
    with dx.open(tmp_path / "mine.duckdb") as mine:
        row = mine.attach(served + "/")[0]

    assert (row["name"], row["models"]) == ("index", 6)
    assert not any("authorization" in request.headers for request in env.log)


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_an_answer_that_is_cut_is_continued(served, env, tmp_path, kind):
    env.faults = [Fault(path="models-", kind=kind, where="stranger", after=300)]
    with dx.open(tmp_path / "mine.duckdb") as mine:
        assert mine.attach(served)[0]["models"] == 6

    asked = [r.headers.get("range") for r in env.log if "models-" in r.path]
    assert asked[0] is None
    assert asked[-1].startswith("bytes=300-")


@pytest.mark.parametrize("kind", ["reset", "truncate"])
def test_a_byte_an_answer_ends_after_a_few_tries(served, env, session, tmp_path, kind):
    env.faults = [Fault(path="models-", kind=kind, where="stranger", nth=0, after=1)]
    session.patience = replace(session.patience, call_s=600.0)
    with dx.open(tmp_path / "mine.duckdb") as mine:
        with pytest.raises(BadIndex, match=r"ends at byte \d+ of .* whole files are kept"):
            mine.attach(served)
        tries = len([r for r in env.log if "models-" in r.path])
        env.faults = []
        assert mine.attach(served)[0]["models"] == 6

    assert tries == session.patience.tries


@pytest.mark.parametrize(
    ("path", "kind", "says"),
    [
        ("models-", "flip", "SHA-256 differs"),
        ("models-", "status", "no such file"),
        *((path, "html", "web page") for path in ("models-", "index.json")),
        *((path, "endless", "more than") for path in ("models-", "index.json")),
        *((path, "drip", "too slow: .* bytes in") for path in ("models-", "index.json")),
    ],
)
def test_what_a_server_does_wrong_is_one_line(served, env, tmp_path, path, kind, says):
    env.faults = [Fault(path=path, kind=kind, status=404, where="stranger", nth=0)]
    with dx.open(tmp_path / "mine.duckdb") as mine:
        with pytest.raises(BadIndex, match=says) as error:
            mine.attach(served)
        assert len(mine.attached()) == 0

    assert str(error.value).isprintable()
