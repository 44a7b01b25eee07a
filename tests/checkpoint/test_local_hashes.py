"""Files on this machine against what is listed of them: a cache's names, an archive's CRCs."""

import hashlib
import io
import json
import os

import pytest
import torch
from factories import finetune, make_bert, make_checkpoint

from deltadex.errors import ModelError
from deltadex.indexer import IndexOptions, index_family
from deltadex.indexer.checkpoint import open_local
from deltadex.store import Catalog

TENSORS = {"a.weight": torch.randn(8, 6, generator=torch.Generator().manual_seed(0))}


def cached(folder, content, *, named=None):
    """A snapshot as huggingface_hub writes it, of a blob that is named by some content's hash."""
    folder = folder / "models--org--name"
    blob = folder / "blobs" / hashlib.sha256(named or content).hexdigest()
    snapshot = folder / "snapshots" / ("0" * 40)
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_bytes(content)
    (snapshot / "model.safetensors").symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def written(form):
    from safetensors.torch import save

    if form == "safetensors":
        return save(TENSORS)
    saved = io.BytesIO()
    torch.save(TENSORS, saved)
    return saved.getvalue()


def changed(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_file_of_the_hub_clients_cache_is_compared_with_its_name(tmp_path):
    folder = cached(tmp_path, written("safetensors"))

    assert open_local(folder, whole=True).verify() == "sha256"
    assert open_local(folder).verify() == "unverified"


def test_a_cached_file_that_changed_on_disk_is_refused(tmp_path):
    content = written("safetensors")
    folder = cached(tmp_path, changed(content, len(content) - 3), named=content)

    checkpoint = open_local(folder, whole=True)
    with pytest.raises(ModelError, match=r"^checksum-mismatch: model\.safetensors: .*fetch it"):
        checkpoint.verify()


def test_nothing_is_listed_of_other_safetensors_files(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(written("safetensors"))

    assert open_local(tmp_path, whole=True).verify() is None


@pytest.mark.parametrize(
    "reading",
    [
        lambda checkpoint: checkpoint.read("a.weight"),
        lambda checkpoint: checkpoint.view("a.weight").__enter__(),
        lambda checkpoint: list(checkpoint.stream(["a.weight"])),
    ],
    ids=["read", "view", "stream"],
)
def test_an_archives_entry_is_compared_with_its_crc(tmp_path, reading):
    content = written("bin")
    place = content.index(TENSORS["a.weight"].numpy().tobytes()) + 17
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(content)
    assert open_local(tmp_path).verify() == "crc"
    path.write_bytes(changed(content, place))

    checkpoint = open_local(tmp_path)
    with pytest.raises(ModelError, match=r"^checksum-mismatch: pytorch_model\.bin: tensor 'a\.w"):
        reading(checkpoint)


def test_an_archive_that_was_saved_without_crcs_is_read_and_nothing_is_claimed(tmp_path):
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        (tmp_path / "pytorch_model.bin").write_bytes(written("bin"))
    finally:
        torch.serialization.set_crc32_options(before)

    checkpoint = open_local(tmp_path)
    assert torch.equal(checkpoint.read("a.weight"), TENSORS["a.weight"])
    assert checkpoint.verify() is None


def test_one_shard_without_a_hash_leaves_the_model_without(tmp_path):
    from safetensors.torch import save

    folder = cached(tmp_path / "cache", written("safetensors"))
    (folder / "model.safetensors").rename(folder / "first.safetensors")
    (folder / "second.safetensors").write_bytes(save({"b": torch.ones(2)}))
    index = {"weight_map": {"a.weight": "first.safetensors", "b": "second.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    assert open_local(folder, whole=True).verify() is None


def test_models_of_an_older_catalog_are_read_again_once(tmp_path):
    base = make_bert(tmp_path / "base", seed=0)
    config = json.loads((tmp_path / "base" / "config.json").read_text("utf-8"))
    for name, form in (("plain", "safetensors"), ("archive", "bin")):
        make_checkpoint(
            tmp_path / "models" / name, finetune(base, seed=1), config=config, form=form
        )
    options = IndexOptions(base=str(tmp_path / "base"), source=tmp_path / "models", verify=True)

    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        index_family(catalog, options)
        assert [m.record.verified for m in catalog.models()] == ["crc", None]
        # what the migration says of models that an earlier version indexed
        catalog._session.execute("UPDATE models SET verified = 'unverified'")
        again = index_family(catalog, options)
        third = index_family(catalog, options)

        assert (again.indexed, again.unchanged) == (2, 0)
        assert (third.indexed, third.unchanged) == (0, 2)
        assert [m.record.verified for m in catalog.models()] == ["crc", None]
