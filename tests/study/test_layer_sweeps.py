"""Accuracies by context length, number of texts and model, on planted layers and tiny networks."""

import dataclasses
import json

import numpy as np
import pytest
from planted_layers import make_hidden, make_rows
from tiny_networks import make_texts, make_tokenizer, tiny_network

from deltadex.errors import StudyError
from deltadex.study.layers import (
    LayersPlan,
    measure_model,
    studied_model,
    study_network,
    sweep_contexts,
)
from deltadex.study.layers.layer_classifier import fit_classifier
from deltadex.study.layers.layer_rows import PunctuationTokens, is_punctuation, split_by_text
from deltadex.study.layers.layers import Layers
from deltadex.study.layers.layers_report import texts_sweep
from deltadex.study.network import token_states
from deltadex.study.texts import Text


def planned(**options):
    return LayersPlan(Layers("m", texts="t", **options))


def watching(**options):
    """A plan, and the number of texts of each pass."""
    passes = []

    def watched(batches, n_texts):
        passes.append(n_texts)
        return batches

    return dataclasses.replace(planned(**options), watched=watched), passes


LENGTHS = [6] * 10 + [11] * 15 + [20] * 30


def silent(name):
    return dataclasses.replace(tiny_network(name), tokenizer=None)


# texts


@pytest.fixture(scope="module")
def split():
    return split_by_text(make_rows(make_hidden(layers=3, tokens=400, dim=12, apart=1.6)))


def test_more_texts_tell_layers_apart_better_on_the_same_held_back_texts(split):
    classifier = fit_classifier(split.train)

    sweep = texts_sweep(split, [40, 3, 10, 99], classifier, seed=1)

    few, some, all_of_them = sweep.points
    assert [point.value for point in sweep.points] == [3, 10, 40]
    assert [point.score.n_train for point in sweep.points] == [72, 240, 960]
    assert {point.score.n_test_texts for point in sweep.points} == {10}
    assert few.score.accuracy < some.score.accuracy <= all_of_them.score.accuracy + 0.03
    assert few.difference is None
    assert some.difference == pytest.approx(some.score.accuracy - few.score.accuracy)
    assert some.difference_error > 0
    assert sweep.skipped == ("99 texts: the classifier learns from 40",)
    assert json.loads(json.dumps(sweep.to_json()))["points"][2]["accuracy"] == pytest.approx(
        classifier.score_of(classifier.predict(split.test.vectors), split.test).accuracy, abs=0.011
    )


# context


def test_a_causal_network_is_run_once_and_gives_what_a_run_for_each_length_gives(monkeypatch):
    plan, passes = watching(keep_tokens=150, batch_size=7)
    arguments = (silent("gpt2"), make_texts(*LENGTHS), [20, 5, 10], plan)
    once = sweep_contexts(*arguments)
    monkeypatch.setattr(
        "deltadex.study.layers.layers_report._same_beginnings", lambda *arguments: False
    )
    each = sweep_contexts(*arguments)

    assert passes == [30, 30, 30, 30]
    for one, other in zip(once.points, each.points, strict=True):
        # predictions near a boundary may move with the last bits of the states
        assert one.score.accuracy == pytest.approx(other.score.accuracy, abs=0.02)
        assert (one.value, one.n_tokens, one.n_texts) == (
            other.value,
            other.n_tokens,
            other.n_texts,
        )


def test_an_encoder_is_run_for_each_length_on_the_texts_that_reach_the_longest():
    plan, passes = watching(keep_tokens=110)

    sweep = sweep_contexts(silent("bert"), make_texts(*LENGTHS), [5, 11, 40, 16], plan)

    assert passes == [30, 30, 30]
    assert sweep.n_examined == 55
    assert [(point.value, point.n_reaching) for point in sweep.points] == [
        (5, 55),
        (11, 45),
        (16, 30),
    ]
    assert [point.n_tokens for point in sweep.points] == [110, 110, 110]
    assert sweep.points[0].score.n_test_texts == 6
    assert sweep.skipped == ("40 tokens: 0 reach it of 55 texts, at least 20 are needed",)
    assert sweep.points[1].difference_error > 0


def test_no_more_texts_are_examined_than_a_sweep_needs():
    plan = planned(most_texts=24, batch_size=4)

    sweep = sweep_contexts(silent("gpt2"), make_texts(*[12] * 80), [4, 12], plan)

    assert 24 <= sweep.n_examined < 80
    assert sweep.points[0].n_reaching == sweep.n_examined


def test_lengths_that_no_text_reaches_are_refused_with_the_next_step():
    with pytest.raises(StudyError, match=r"2 texts have 9 tokens or more, of 3 texts.*shorter"):
        sweep_contexts(silent("gpt2"), make_texts(9, 9, 4), [9, 12], planned())


# models


def test_models_of_other_sizes_are_measured_on_the_same_held_back_texts():
    texts = make_texts(*[9] * 12, *[14] * 12)
    plan = planned(keep_tokens=120, seed=3)
    small = silent("gpt2")
    large = dataclasses.replace(tiny_network("gpt2", n_embd=48, n_layer=4), tokenizer=None)

    report = study_network(small, texts, plan)
    first, again, other = (
        studied_model(small, report),
        measure_model(small, texts, plan),
        measure_model(large, texts, plan),
    )

    assert first.score.accuracy == pytest.approx(again.score.accuracy)
    assert (other.n_layers, other.dim, other.score.chance) == (4, 48, 0.2)
    assert other.n_parameters == sum(p.numel() for p in large.model.parameters())
    assert other.above_chance == pytest.approx((other.score.accuracy - 0.2) / 0.8)
    assert other.score.n_test_texts == first.score.n_test_texts == 5


# punctuation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".", True),
        ("##,", True),
        (" ", True),
        ("", True),
        ("…»", True),
        ("。", True),  # Chinese
        ("،", True),  # Arabic
        ("।", True),  # Hindi
        ("+", True),
        ("🙂", True),
        ("a", False),
        ("##'s", False),
        ("7", False),
        ("Ж", False),
        ("語", False),
        ("\u0647", False),  # Arabic
        ("\u093f", False),  # a vowel sign of Hindi
        ("\u0663", False),  # an Arabic digit
        ("\ufffd", False),  # a part of a character
    ],
)
def test_punctuation_holds_no_letter_or_digit_of_any_script(text, expected):
    assert is_punctuation(text) is expected


def test_states_of_punctuation_are_left_out_and_counted():
    tokenizer = make_tokenizer()
    network = dataclasses.replace(tiny_network("bert"), tokenizer=tokenizer)
    texts = [Text("the , cat ! sat .", "", "1"), Text("? ! ,", "", "2"), Text("dogs.", "", "3")]
    marks = PunctuationTokens(tokenizer)

    words = list(marks.removed(token_states(network, texts, batch_size=1)))

    pieces = [tokenizer.convert_ids_to_tokens(batch.token.tolist()) for batch in words]
    assert pieces == [["the", *"c", "##a", "##t", "s", "##a", "##t"], ["d", "##o", "##g", "##s"]]
    assert marks.n_seen == 7
    assert [batch.hidden.shape[1] for batch in words] == [7, 4]


def test_a_plan_without_punctuation_counts_what_it_leaves_out_and_needs_a_tokenizer():
    texts = [Text(f"the cat, a dog {'.' * (1 + n % 2)}", "", str(n)) for n in range(12)]
    plan = planned(punctuation=False, keep_tokens=60)
    network = dataclasses.replace(tiny_network("bert"), tokenizer=make_tokenizer())

    report = study_network(network, texts, plan)

    assert report.n_punctuation_removed == 12 + 18
    assert report.control("no-punctuation") is None
    assert study_network(network, texts, planned()).control("no-punctuation") is not None
    with pytest.raises(StudyError, match=r"no tokenizer.*--no-punctuation"):
        study_network(silent("bert"), texts, plan)


def test_texts_of_one_length_come_together():
    plan = planned(batch_size=4)

    batches = list(plan.states(silent("gpt2"), make_texts(*[3, 9] * 8)))

    tokens = [set(np.bincount(batch.text)[batch.text[0] :].tolist()) for batch in batches]
    assert tokens == [{2}, {2}, {8}, {8}]
