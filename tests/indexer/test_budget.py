"""Budgets: the same rows for everyone, few bytes on the wire, fingerprints that do not mix."""

import math
from dataclasses import replace

import huggingface_hub
import pytest
import torch
from factories import files_of, finetune, make_checkpoint, read_config
from hub_standin import StandInHub
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny_networks import tiny_model
from transformers import BertConfig, BertModel

from deltadex.errors import RequestError
from deltadex.indexer import IndexOptions, fingerprint_query, index_family
from deltadex.indexer.architecture import place
from deltadex.indexer.checkpoint import open_local
from deltadex.indexer.delta import DenseDelta
from deltadex.indexer.hub.session import default_session
from deltadex.indexer.job import choose_parts, parse_budget, read_parts
from deltadex.search import StoredQuery, evaluate, find_similar


@pytest.mark.parametrize("model", ["gpt2", "gpt_neox", "llama", "mixtral"])
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_what_is_read_by_rows_is_cut_from_whole_matrices(model, share, tmp_path):
    tiny_model(model).save_pretrained(tmp_path / "m")
    checkpoint = open_local(tmp_path / "m")
    shapes = {name: ref.shape for name, ref in checkpoint.tensors.items()}
    placed = place(shapes, read_config(tmp_path / "m"))
    parts = choose_parts(placed, share)
    before = checkpoint.bytes_read

    read = list(read_parts(checkpoint, placed.placements, parts))
    bytes_read = checkpoint.bytes_read - before

    assert sorted((p.slot, p.part) for p, _ in read) == sorted(parts)
    for placement, matrix in read:
        part = parts[placement.slot, placement.part]
        whole = DenseDelta(placement.cut(checkpoint.read(placement.tensor)))
        assert torch.equal(part.cut(whole).matrix, matrix)
        size = list(placement.shape)
        size[part.axis] = part.stop - part.start
        assert tuple(matrix.shape) == tuple(size)
    layer_values = sum(math.prod(p.shape) for p in placed.placements)
    seen = sum(matrix.numel() for _, matrix in read)
    rows = len(placed.placements) * max(max(p.shape) for p in placed.placements)
    assert seen <= share * layer_values + rows
    assert bytes_read <= seen * 4


def test_budgets_stand_side_by_side_and_do_not_mix(family, catalog):
    base, models = str(family / "base"), family / "models"
    options = IndexOptions(base=base, source=models, labels=models / "labels.csv")
    whole = index_family(catalog, options)
    some = index_family(catalog, replace(options, budget="20%"))
    with pytest.raises(RequestError, match="mean-factors needs whole matrices"):
        index_family(catalog, replace(options, recipes=("mean-factors",), budget="2%"))

    shares = {recipe.id: recipe.share for recipe in catalog.recipes().values()}
    assert shares == {whole.recipes[0].id: 1.0, some.recipes[0].id: 0.2}
    for recipe in shares:
        assert evaluate(catalog, recipe=recipe)["micro"] == 1.0
        (near,) = find_similar(catalog, StoredQuery("a-0"), k=1, recipe=recipe).neighbours
        assert near.model.startswith("a-")
    assert some.bytes_read < 0.5 * whole.bytes_read


def test_one_more_model_is_read_as_its_family_was(family, catalog):
    base = str(family / "base")
    index_family(catalog, IndexOptions(base=base, source=family / "models", budget="10%"))
    stored = load_file(family / "base" / "model.safetensors")
    late = make_checkpoint(family / "late", finetune(stored, seed=9), config=family / "base")

    report = index_family(catalog, IndexOptions(base=base, models=(str(late),)))
    indexed = fingerprint_query(catalog, str(late), catalog.bases()[0], report.recipes[0])

    assert report.recipes[0].share == 0.1
    assert report.indexed == 1
    assert indexed.fingerprints[0].recipe == report.recipes[0]
    assert indexed.bytes_read < 0.5 * indexed.model.bytes_total


@pytest.mark.parametrize("form", ["safetensors", pytest.param("bin", marks=pytest.mark.slow)])
def test_a_whole_family_of_the_hub_stays_within_its_budget(tmp_path, catalog, form):
    torch.manual_seed(0)
    base = BertModel(
        BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
                   intermediate_size=1024, vocab_size=2000)
    )  # fmt: skip
    default_session.cache_clear()
    session = default_session()
    base.save_pretrained(tmp_path / "config")
    stored = {name: t.detach().clone() for name, t in base.state_dict().items()}
    make_checkpoint(tmp_path / "base", stored, config=tmp_path / "config", form=form)
    layers = sum(t.nbytes for n, t in stored.items() if "layer." in n and t.dim() == 2)
    layers += stored["embeddings.word_embeddings.weight"].nbytes
    with StandInHub() as hub:
        hub.add("acme/base", files_of(tmp_path / "base"))
        for number in range(3):
            tuned = finetune(stored, seed=number)
            folder = make_checkpoint(
                tmp_path / f"m{number}", tuned, config=tmp_path / "config", form=form
            )
            hub.add(f"user/m{number}", files_of(folder), parents=("acme/base",))
        session.endpoint, session.cache_dir = hub.endpoint, tmp_path / "cache"
        report = index_family(catalog, IndexOptions(base="acme/base", hub=True, budget="2%"))
        bodies, requests = hub.wire_bytes(), len(hub.requests("cdn"))
        default_session.cache_clear()
        huggingface_hub.close_session()

    assert report.indexed == 3, report.refused
    read = 4  # three fine-tunes and the base
    # of an archive also its list of entries, the list of tensors, and an entry's header
    listed = 0 if form == "safetensors" else 40_000
    assert bodies <= (0.02 * layers + listed) * read
    assert report.bytes_read <= bodies
    blocks_of_rows = 2
    per_layer = 4 * 6 / (2 if form == "safetensors" else 1)
    assert requests <= read * (3 + per_layer + blocks_of_rows)


@settings(deadline=None)
@given(st.floats(0.0002, 0.49), st.integers(10**6, 10**10))
def test_a_size_is_the_share_that_it_buys(share, layer_bytes):
    by_size = parse_budget(f"{share * layer_bytes / 1e6:f}MB", layer_bytes)

    assert by_size <= share * 1.001
    assert by_size == pytest.approx(share, rel=0.11)


@pytest.mark.parametrize("text", ["", "2", "many", "-2%", "0%", "80%", "nan%", "2 apples"])
def test_what_is_no_budget_is_refused(text):
    with pytest.raises(RequestError, match="budget"):
        parse_budget(text, 10**8)
