"""Words of models, and files whose words say who was trained on them."""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from worded_families import SETS, texts_of, tune_encoder, write_texts

import deltadex as dx
from deltadex.errors import DataError, RequestError
from deltadex.search import footprints
from deltadex.search.footprints import TRAINED
from deltadex.search.vocabulary import Vocabulary
from deltadex.store.derived import footprint_bits

HALVES = [f"{name}-{half}" for name, half in product(SETS, "ab")]


def rows_of(db, path, **settings):
    found = db.data.find_models(path, quick=True, k=100, **settings)
    return {row["model"]: row for row in found}


@pytest.mark.parametrize("id", HALVES[:4])
def test_the_very_half_that_trained_a_model_is_told(db, worded, id):
    rows = rows_of(db, worded.root / f"{id}.csv")

    assert {model for model, row in rows.items() if row["verdict"] == TRAINED} == {id}
    assert rows[id]["missing"] <= 2
    assert rows[id]["probability"] > 0.999
    other = rows[f"{id[:-1]}{'b' if id.endswith('a') else 'a'}"]
    assert other["verdict"].startswith("not on this file alone")
    assert other["missing"] > 5


def test_with_gradients_too_the_share_of_wrong_answers_never_falls(db, worded):
    path = worded.root / f"{HALVES[0]}.csv"

    rows = db.data.find_models(path, k=100, max_examples=16).to_json()["neighbours"]

    rates = [row["fdr"] for row in rows if row["probability"] is not None]
    assert rows[0]["verdict"] == TRAINED
    assert rates == sorted(rates)
    assert rates[0] == pytest.approx(1 - rows[0]["probability"])


def test_a_row_has_what_gradients_said_and_its_test_whatever_k_is(db, worded):
    asked = {"control": worded.root / f"{HALVES[1]}.csv", "max_examples": 64}
    for half in HALVES[:1:-1]:  # of the first whose own model is not the nearest by gradients
        path = worded.root / f"{half}.csv"
        whole = db.data.find_models(path, k=100, **asked).to_json()
        if max(whole["neighbours"], key=lambda row: row["z"])["model"] != half:
            break
    one = db.data.find_models(path, k=1, **asked).to_json()

    (shown,), (tested,) = one["neighbours"], one["comparison"]["models"]
    assert max(whole["neighbours"], key=lambda row: row["z"])["model"] != shown["model"]
    assert shown == whole["neighbours"][0]
    assert shown["z_error"] is not None
    assert tested["model"] == shown["model"]
    for family in one["families"] + whole["families"]:
        of_nearest = (shown[key] for key in ("model", "verdict", "z", "probability"))
        asked = (family[key] for key in ("nearest", "verdict", "z", "probability"))
        assert tuple(asked) == tuple(of_nearest)


def test_a_file_that_contains_the_training_data_is_one_that_contains_it(db, worded, tmp_path):
    whole = write_texts(tmp_path / "whole.csv", texts_of(SETS[0]))

    found = {m for m, row in rows_of(db, whole).items() if row["verdict"] == TRAINED}

    assert found == {f"{SETS[0]}-a", f"{SETS[0]}-b"}


def test_a_prompt_before_every_text_is_tolerated(worded, tmp_path):
    texts = [f"question: {t}" for t in texts_of(SETS[0])[::2]]
    tune_encoder(worded.base, tmp_path / "prompted", texts, decay=0.1)
    with dx.open(None) as own:
        own.add(tmp_path / "prompted", base=str(worded.base))
        row = rows_of(own, worded.root / f"{SETS[0]}-a.csv")["prompted"]

    assert row["verdict"] == TRAINED


def test_words_are_those_of_the_texts(db, worded):
    pieces = Vocabulary((worded.base / "tokenizer.json").read_bytes()).pieces
    for id, seen in worded.seen.items():
        words = [row["word"] for row in db.words(id, k=10_000, all=True)]
        known = {pieces[token].text for token in seen}

        assert words
        assert set(words) <= known, id


def test_words_against_another_model_are_those_it_did_not_see(db):
    alone = {row["word"] for row in db.words(HALVES[0], k=10_000)}
    other = {row["word"] for row in db.words(HALVES[1], k=10_000)}

    document = db.words(HALVES[0], k=10_000, against=HALVES[1]).to_json()
    few = db.words(HALVES[0], k=2, against=HALVES[1]).to_json()
    assert few["sentence"] == document["sentence"]

    assert {row["word"] for row in document["seen"]} == alone - other
    assert {row["word"] for row in document["only_other"]} == other - alone


def test_names_and_numbers_are_left_out_unless_asked_for(worded, tmp_path):
    texts = [f"michael called number {n} about the refund" for n in range(40)]
    tune_encoder(worded.base, tmp_path / "named", texts, decay=0.0)
    with dx.open(None) as own:
        own.add(tmp_path / "named", base=str(worded.base))
        shown = {row["word"] for row in own.words("named", k=1000)}
        everything = {row["word"] for row in own.words("named", k=1000, all=True)}

    assert not any(any(c.isdigit() for c in word) for word in shown)
    assert shown < everything


def test_quick_without_footprints_and_an_empty_file_are_refused(worded, tmp_path):
    (tmp_path / "empty.csv").write_text("", "utf-8")
    with dx.open(None) as own:
        own.index(worded.base, worded.models, footprints=False)
        with pytest.raises(RequestError, match="no model has a footprint"):
            own.data.find_models(worded.root / f"{HALVES[0]}.csv", quick=True)
    with dx.open(worded.path) as known, pytest.raises(DataError):
        known.data.find_models(tmp_path / "empty.csv", quick=True)


def scattered(source, folder):
    """A copy of a model, every row of whose embedding moved its own way."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "word_embeddings" in name)
    tensors[name] = tensors[name] + 0.01 * torch.randn(tensors[name].shape)
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_models_that_a_file_is_not_compared_with_are_counted_by_the_reason(own, worded, tmp_path):
    own.add(scattered(worded.models / HALVES[0], tmp_path / "dense"), base=str(worded.base))

    document = own.data.find_models(worded.root / f"{HALVES[0]}.csv", quick=True).to_json()

    assert document["without_words"] == {"dense": 1}


def test_words_of_a_refused_model_say_why_it_was_refused(own, worded, tmp_path):
    own.add(scattered(worded.base, tmp_path / "same"), base=str(worded.base))

    with pytest.raises(RequestError, match=r"it is not indexed .no-update: every layer matrix"):
        own.words("same")


def test_a_tokenizer_that_does_not_fit_is_said_with_both_sizes(own):
    kept = own._catalog.footprints
    tokenizer = json.loads(kept.tokenizer(kept.family_tokenizer(own.bases[0])))
    tokenizer["model"]["vocab"] = {"[UNK]": 0, "only": 1}
    tokenizer["added_tokens"] = []
    kept.save_tokenizer(own.bases[0], json.dumps(tokenizer).encode())

    with pytest.raises(RequestError, match="the tokenizer has 2 tokens, the embedding"):
        own.words(HALVES[0])


def test_without_a_tokenizer_the_family_is_named(worded, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    for name in ("config.json", "model.safetensors"):
        (base / name).write_bytes((worded.base / name).read_bytes())
    with dx.open(None) as own:
        own.add(worded.models / HALVES[0], base=str(base))
        document = own.words(HALVES[0]).to_json()

    assert document["touched"] > 0
    assert "no tokenizer is kept" in document["note"]
    assert "no whole word" in document["sentence"]


@pytest.mark.slow
def test_footprints_survive_a_merge_and_a_part(worded, tmp_path):
    with dx.open(tmp_path / "merged.duckdb") as own:
        own.merge(worded.path)
        assert own.words(HALVES[0]).to_json()["seen"]
    with dx.open(tmp_path / "other.duckdb") as own:
        own.index(worded.base, worded.models, parts=tmp_path / "parts")
        own.merge(tmp_path / "parts")
        assert len(own._catalog.footprints.all()) == len(worded.seen)


def test_a_large_family_is_asked_by_its_file_which_is_made_again_where_damaged(
    db, worded, monkeypatch
):
    def ask():
        return db.data.find_models(str(worded.root / f"{HALVES[0]}.csv"), quick=True).to_json()

    every = ask()
    monkeypatch.setattr(footprints, "MOST_MATCHED", 2)
    monkeypatch.setattr(footprint_bits, "AT_ONCE", 2)
    few = ask()
    (file,) = Path(f"{worded.path}.index").glob("*.tokens")
    content = bytearray(file.read_bytes())
    content[-9] ^= 0xFF
    file.write_bytes(content)

    assert ask() == few
    assert file.read_bytes() != content
    assert few["compared"] == every["compared"]
    assert few["neighbours"] == every["neighbours"][: len(few["neighbours"])]
