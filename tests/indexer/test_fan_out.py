"""A family read in shares, leases and by a cluster's workers says what one process says."""

import pickle
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from factories import finetune, make_family, save_models
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import deltadex as dx
from deltadex.errors import ModelError, RequestError, SourceError, StoreFull
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer import run as fan_out
from deltadex.indexer.family import Member
from deltadex.indexer.run import TRIES, Lease, leases, read_lease, share_of
from deltadex.records import ModelRecord, Recipe
from deltadex.store import Catalog, PartFolder, content_sha256, merge_catalogs

RECIPE = Recipe(name="sketch", rank=4, dim=8)


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """Four fine-tunes, one equal to the base, and one that was cut off."""
    folder = tmp_path_factory.mktemp("family")
    make_family(folder)
    base = load_file(folder / "base" / "model.safetensors")
    save_models(folder, {"same": base, "short": finetune(base, seed=9)})
    weights = folder / "models" / "short" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    return folder


def options(family, **more):
    labels = family / "models" / "labels.csv"
    return IndexOptions(base=str(family / "base"), source=family / "models", labels=labels, **more)


def content(path, family, **more):
    """What a run says, and the hash of the catalog after it."""
    with Catalog.open(path) as catalog:
        report = index_family(catalog, options(family, **more))
        return report, content_sha256(catalog)


@pytest.fixture(scope="module")
def alone(family, tmp_path_factory):
    """The hash of what one process says."""
    return content(tmp_path_factory.mktemp("alone") / "c.duckdb", family)[1]


def member(id, *, kind="adapter", refused=False):
    refusal = ModelError("gated", "gated") if refused else None
    return Member(record=ModelRecord(id=id, base="b", kind=kind), refusal=refusal)


def test_every_model_is_in_one_share_and_shares_are_about_equal():
    members = [member(f"org/model-{i}") for i in range(4000)]
    shares = [share_of(members, f" {n}/4 ") for n in range(1, 5)]
    sizes = [len(share) for share in shares]

    assert sorted(m.record.id for share in shares for m in share) == sorted(
        m.record.id for m in members
    )
    assert max(sizes) < 1.15 * min(sizes)


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "a/b", "-1/4", "1/2/3", "１/２"])
def test_a_share_that_is_none_is_refused(text):
    with pytest.raises(RequestError, match="expected N/OF"):
        share_of([], text)


@given(st.lists(st.sampled_from(["full", "adapter", "refused"]), max_size=80))
def test_leases_hold_every_model_once_in_order(kinds):
    members = [
        member(f"m{n}", kind="full" if kind == "full" else "adapter", refused=kind == "refused")
        for n, kind in enumerate(kinds)
    ]

    given_out = list(leases(members, [RECIPE]))

    assert [m for lease in given_out for m in lease.members] == members
    assert len({lease.id for lease in given_out}) == len(given_out)
    for lease in given_out:
        n_read = sum(m.refusal is None for m in lease.members)
        assert n_read <= 16
        if any(m.record.kind == "full" and m.refusal is None for m in lease.members):
            assert n_read == 1


def test_a_leases_name_is_that_of_its_work():
    one, other = [member("a"), member("b")], [member("a"), member("c")]
    changed = [replace(m, record=replace(m.record, signature="new")) for m in one]
    recipe = replace(RECIPE, rank=5)
    names = [Lease.of(m, [r]).id for m, r in [(one, RECIPE), (other, RECIPE), (changed, RECIPE)]]

    assert Lease.of(one, [RECIPE]).id == names[0]
    assert len({*names, Lease.of(one, [recipe]).id}) == 4


def test_a_run_of_parts_that_was_stopped_goes_on(family, alone, tmp_path, monkeypatch):
    written, write = [], PartFolder.write

    def fails_once(folder, part):
        if len(written) == 2:
            raise StoreFull("no space")
        written.append(part)
        return write(folder, part)

    folder, path = str(tmp_path / "parts"), tmp_path / "c.duckdb"
    with monkeypatch.context() as context:
        context.setattr(PartFolder, "write", fails_once)
        with pytest.raises(StoreFull):
            content(path, family, parts=folder)

    report, _ = content(path, family, parts=folder)

    assert report.unchanged == sum(o.status == "indexed" for part in written for o in part.outcomes)
    with Catalog.open(tmp_path / "all.duckdb") as catalog:
        assert merge_catalogs(catalog, [folder])["added"] == 6
        assert content_sha256(catalog) == alone
        assert catalog.base(catalog.bases()[0]).architecture == "bert"


class InProcess(fan_out.RayCluster):
    """A cluster whose workers are this process, and end when they are told to."""

    def __init__(self, job, parts, deaths=()):
        super().__init__(None, ["one", "other"])
        self.deaths = deaths
        self._job, self._folder = pickle.loads(pickle.dumps(job)), PartFolder(parts)
        self.given_out = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, lease):
        self.given_out.append(lease)
        self.tasks[len(self.given_out)] = lease, self.idle.pop()

    def ended(self):
        lease, worker = self.tasks.pop(next(iter(self.tasks)))
        self.idle.append(worker)
        self.deaths -= 1
        if self.deaths >= 0:
            return lease, None, ""
        return lease, self._folder.write(read_lease(lease, self._job)), ""


@pytest.fixture
def in_process(monkeypatch):
    """Put a cluster in this process in Ray's place; returns those that were opened."""
    clusters = []

    def replace_ray(deaths=0):
        def opened(address, workers, job, parts):
            clusters.append(InProcess(job, parts, deaths))
            return clusters[-1]

        monkeypatch.setattr(fan_out, "opened_cluster", opened)
        return clusters

    return replace_ray


@pytest.mark.parametrize("deaths", [0, 2])
def test_workers_that_end_change_nothing(family, alone, tmp_path, in_process, deaths):
    clusters = in_process(deaths)

    report, found = content(tmp_path / "c.duckdb", family, ray="local")

    assert found == alone
    assert (report.indexed, len(report.refused)) == (4, 2)
    assert not (tmp_path / "c.duckdb.parts").exists()
    again, found = content(tmp_path / "c.duckdb", family, ray="local")
    assert (again.unchanged, found, len(clusters)) == (4, alone, 1)


def test_what_an_earlier_run_left_in_parts_is_committed_and_not_read(
    family, alone, tmp_path, in_process
):
    content(tmp_path / "none.duckdb", family, parts=str(tmp_path / "c.duckdb.parts"))
    clusters = in_process()

    report, found = content(tmp_path / "c.duckdb", family, ray="local")

    assert (found, clusters, report.unchanged) == (alone, [], 4)


def test_a_model_that_ends_every_worker_is_refused_and_the_others_are_read(
    family, tmp_path, in_process
):
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        in_process(6 * TRIES)
        report = index_family(catalog, options(family, ray="local"))

        assert {o.code for o in report.refused} >= {"internal"}
        report = index_family(catalog, replace(options(family), retry_failed=True))
        assert len(catalog.models(status="indexed")) == 4


def test_a_lease_that_ends_a_worker_is_given_out_model_by_model():
    lease = Lease.of([member(name) for name in "abc"], [RECIPE])

    again = fan_out._again(lease, [RECIPE], Counter())

    assert [[m.record.id for m in one.members] for one in again] == [["a"], ["b"], ["c"]]


@pytest.mark.slow
def test_a_cluster_that_is_not_there_and_a_start_that_fails_are_one_line(
    family, tmp_path, monkeypatch
):
    def fail(**_):
        # as ray/_private/node.py
        raise Exception("The current node timed out during startup. This could happen because")

    ray = pytest.importorskip("ray")
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        with pytest.raises(RequestError, match=r"^Ray at '127.0.0.1:1': "):
            index_family(catalog, options(family, ray="127.0.0.1:1"))
        monkeypatch.setattr(ray, "init", fail)
        with pytest.raises(RequestError, match=r"'local' does not start: .*timed out.*without --"):
            index_family(catalog, options(family, ray="local"))


def test_members_that_are_refused_unread_start_no_cluster(family, tmp_path, in_process):
    clusters = in_process()
    config = family / "models" / "b-0" / "config.json"
    stranger = tmp_path / "models" / "stranger"
    shutil.copytree(config.parent, stranger)
    (stranger / "config.json").write_text('{"model_type": "gpt2"}')
    elsewhere = replace(options(family, ray="local"), source=tmp_path / "models", labels=None)
    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        report = index_family(catalog, elsewhere)

    assert [o.code for o in report.refused] == ["other-base"]
    assert clusters == []


def test_labels_that_come_later_are_given_to_the_merged_catalog(family, alone, tmp_path, caplog):
    caplog.set_level("WARNING", logger="deltadex")
    folder, unlabelled = str(tmp_path / "parts"), replace(options(family), labels=None)
    with Catalog.open(tmp_path / "none.duckdb") as catalog:
        index_family(catalog, replace(unlabelled, parts=folder))
    assert caplog.text == ""

    content(tmp_path / "none.duckdb", family, parts=folder)

    assert "their parts keep the labels" in caplog.text
    with Catalog.open(tmp_path / "all.duckdb") as catalog:
        merge_catalogs(catalog, [folder])
        assert content_sha256(catalog) != alone
        report = index_family(catalog, options(family))
        assert (report.bytes_read, content_sha256(catalog)) == (0, alone)


def test_a_plan_counts_the_share_and_what_is_in_parts(family, tmp_path):
    with dx.open(tmp_path / "c.duckdb") as db:
        places = {"base": family / "base", "source": family / "models", "parts": tmp_path / "parts"}
        planned = [db.plan(**places, share=f"{n}/2").to_json()["models"] for n in (1, 2)]
        db.index(**places)
        after = db.plan(**places).to_json()["models"]

    assert sum(document["to_read"] for document in planned) == 6
    assert after["in_catalog"] == 4


def test_a_base_whose_name_is_no_files_is_a_name(tmp_path):
    (tmp_path / "models").mkdir()
    with (
        Catalog.open(tmp_path / "c.duckdb") as catalog,
        pytest.raises(SourceError, match="no models found"),
    ):
        index_family(catalog, IndexOptions(base="x" * 300, source=tmp_path / "models"))
