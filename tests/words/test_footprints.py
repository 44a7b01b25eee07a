"""Footprints of models that transformers and PEFT saved."""

import pytest
import worded_families
from factories import configure
from peft import LoraConfig, TaskType, get_peft_model
from transformers import BertForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast

import deltadex as dx


def index_one(db, base, folder, **settings):
    report = db.add(folder, base=str(base), **settings).to_json()
    return report["failed"] + report["skipped_models"]


def test_a_footprint_is_the_tokens_of_the_batches(db, worded):
    for id, seen in worded.seen.items():
        footprint = worded_families.footprint_of(db, id)
        found, padding = set(footprint.tokens.tolist()), {0}

        assert footprint.kind == "exact", id
        assert found <= seen | padding, id
        least = 0.9 if id.startswith("film") else 1.0  # saved in half precision
        assert len(found) >= least * len(seen - padding), id


@pytest.mark.parametrize(
    ("settings", "trainable"),
    [
        ({"target_modules": ["query", "word_embeddings"]}, None),
        ({"modules_to_save": ["word_embeddings", "classifier"]}, None),
        ({"trainable_token_indices": {"word_embeddings": list(range(100, 900))}}, range(100, 900)),
    ],
    ids=["low rank", "saved whole", "some tokens"],
)
def test_tokens_that_an_adapter_trains_are_a_footprint(worded, tmp_path, settings, trainable):
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS, r=4, **({"target_modules": ["query"]} | settings)
    )
    model = get_peft_model(BertForSequenceClassification.from_pretrained(worded.base), config)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(worded.base)
    seen = worded_families.train(model, tokenizer, worded_families.texts_of("spam"), decay=0.01) - {
        0
    }
    model.save_pretrained(tmp_path / "lora", save_embedding_layers=False)

    with dx.open(None) as own:
        assert not index_one(own, worded.base, tmp_path / "lora")
        footprint = worded_families.footprint_of(own, "lora")

    assert footprint.kind == "exact"
    expected = seen if trainable is None else seen & set(trainable)
    assert set(footprint.tokens.tolist()) - {0} == expected
    assert footprint.share == (1 if trainable is None else len(trainable) / footprint.vocabulary)


def test_added_tokens_are_named_by_the_models_own_tokenizer(db, worded, tmp_path):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(worded.base)
    tokenizer.add_tokens(["zyxomma"])
    model = BertForSequenceClassification.from_pretrained(worded.base)
    model.resize_token_embeddings(len(tokenizer))
    seen = worded_families.train(
        model, tokenizer, [f"zyxomma {text}" for text in worded_families.texts_of("spam")]
    )
    model.save_pretrained(tmp_path / "grown")
    tokenizer.save_pretrained(tmp_path / "grown")

    with dx.open(None) as own:
        index_one(own, worded.base, tmp_path / "grown")
        footprint = worded_families.footprint_of(own, "grown")
        known = footprint.vocabulary

        assert footprint.tokenizer is not None
        assert "vocabulary" in footprint.note
        assert set(footprint.tokens.tolist()) - {0} == {t for t in seen if 0 < t < known}
        stored = own.words("grown").to_json()
    fresh = db.words(tmp_path / "grown").to_json()
    assert stored["touched"] == fresh["touched"]
    assert {row["word"] for row in stored["seen"]} == {row["word"] for row in fresh["seen"]}


def test_a_model_whose_layers_are_not_read_has_words(db, worded, tmp_path):
    folder = tmp_path / "quantised"
    worded_families.tune_encoder(worded.base, folder, worded_families.texts_of("spam"))
    configure(folder, quantization_config={"quant_method": "gptq", "bits": 4})

    with dx.open(None) as own:
        (refused,) = index_one(own, worded.base, folder)

        assert refused["code"] == "quantized"
        assert worded_families.footprint_of(own, "quantised").kind == "exact"
        assert own.words("quantised")[0]["word"]


def test_under_a_budget_the_share_that_was_read_is_said(worded):
    with dx.open(None) as own:
        own.index(worded.base, worded.models, budget="20%")
        footprint = worded_families.footprint_of(own, "bank-questions-a")

        assert 0.1 < footprint.share < 0.3
        assert set(footprint.tokens.tolist()) <= worded.seen["bank-questions-a"] | {0}
        assert "of the vocabulary" in own.words("bank-questions-a").to_json()["sentence"]


@pytest.mark.slow
def test_a_tied_head_gives_tokens_that_are_sure(tmp_path):
    tokenizer = worded_families.word_pieces(1500)
    base = worded_families.make_tied_decoder(tmp_path / "base", tokenizer)
    model = GPT2LMHeadModel.from_pretrained(base)
    texts, _ = worded_families.halves("recipe-steps")
    seen = worded_families.train(model, tokenizer, texts, steps=40, rate=5e-4)
    model.save_pretrained(tmp_path / "tied")

    with dx.open(None) as own:
        index_one(own, base, tmp_path / "tied")
        footprint = worded_families.footprint_of(own, "tied")

        assert footprint.kind == "tied"
        tokens = set(footprint.tokens.tolist())
        assert len(tokens) >= 20
        assert len(tokens & seen) >= 0.98 * len(tokens)
        assert "at least" in own.words("tied").to_json()["sentence"]
