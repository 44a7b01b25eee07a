"""Signatures of bases are kept, merged, backed up and checked."""

import json
from dataclasses import replace

from merges import merge

from deltadex.store import Catalog, StoredSignature, back_up, write_parquet

ONE = StoredSignature(
    base="org/base",
    version=1,
    registered=True,
    source="org/base",
    revision="0" * 40,
    facts="{}",
    matrices=json.dumps([["w", "decoder.q", 0, [4, 4], "BF16", 16]]),
    runs=bytes(32),
    invariants=b"",
)


def keep(path, *signatures):
    with Catalog.open(path) as catalog:
        for signature in signatures:
            catalog.signatures.save(signature)
    return path


def kept(path):
    with Catalog.open(path, read_only=True) as catalog:
        return catalog.signatures.all()


def test_a_signature_takes_the_place_of_the_base_s_last_one(path):
    keep(path, replace(ONE, runs=bytes(30)), ONE, replace(ONE, base="a"))

    assert kept(path) == [replace(ONE, base="a"), ONE]


def test_a_merge_brings_those_that_are_missing_and_a_backup_has_all(a, b, tmp_path):
    keep(a, ONE)
    keep(b, replace(ONE, revision=None), replace(ONE, base="org/other"))

    merge(a, b)

    assert kept(a) == [ONE, replace(ONE, base="org/other")]
    with Catalog.open(a) as catalog:
        back_up(catalog, tmp_path / "copy.duckdb")
        write_parquet(catalog, tmp_path / "tables")
    assert kept(tmp_path / "copy.duckdb") == kept(a)
    assert (tmp_path / "tables" / "base_signatures.parquet").exists()
