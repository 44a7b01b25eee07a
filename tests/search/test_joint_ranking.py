"""Models of several families in one ranking."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltadex.search import judge_jointly, rank_jointly
from deltadex.search.trained_on import LONE_BOUND, DataCalibration, TrainedModel, TrainedModels

SMALL, LARGE = 6, 40
"""Models of a family without a calibration, and of one with it."""

SCORES = st.lists(st.floats(0, 20), min_size=1, max_size=6)
LABELS = st.lists(st.sampled_from("ab"), max_size=6)
FAMILIES = st.lists(
    st.tuples(SCORES, st.sampled_from([SMALL, LARGE]), LABELS), min_size=1, max_size=4
)


def answer_of(base, scores, n_models=LARGE, labels=()):
    """A family's answer, as it is alone."""
    z = np.sort(np.array(scores, dtype=np.float64))[::-1]
    calibration = DataCalibration.of(n_models, "causal")
    names = [*labels, *[None] * len(z)][: len(z)]
    judged = calibration.judge(z, names, n_candidates=n_models)
    about = dict(cosine=0.1, score=0.5, z_error=None, author=None, run=None, base=base)
    models = [
        TrainedModel(
            rank=place + 1,
            model=f"m{place}",
            z=value,
            probability=judged.probability(place),
            fdr=float(judged.fdr[place]),
            verdict=judged.verdicts[place],
            dataset=names[place],
            **about,
        )
        for place, value in enumerate(z.tolist())
    ]
    return TrainedModels(
        recipe="sketch",
        recipe_id="sketch-1",
        models=tuple(models),
        compared=n_models,
        references=0,
        control=None,
        calibration=calibration,
    )


def joint(families):
    answers = [answer_of(f"base-{n}", *family) for n, family in enumerate(families)]
    return answers, rank_jointly(judge_jointly(answers))


@given(SCORES, st.sampled_from([SMALL, LARGE]), LABELS)
def test_one_family_has_the_answer_that_it_has_alone(scores, n_models, labels):
    (alone,), models = joint([(scores, n_models, labels)])

    assert [replace(model, fdr=0.0) for model in models] == [
        replace(model, fdr=0.0) for model in alone.models
    ]
    assert [model.fdr for model in models] == pytest.approx([model.fdr for model in alone.models])


@given(FAMILIES)
def test_families_keep_their_order_and_rates_are_of_the_whole_list(families):
    answers, models = joint(families)

    assert [model.rank for model in models] == list(range(1, len(models) + 1))
    for answer in answers:
        own = [model.model for model in models if model.base == answer.models[0].base]
        assert own == [model.model for model in answer.models]
    known = [model.probability for model in models if model.probability is not None]
    assert [model.probability for model in models[: len(known)]] == known
    means = np.cumsum(1 - np.array(known)) / np.arange(1, len(known) + 1)
    expected = np.maximum.accumulate(means).tolist() if known else []
    assert [model.fdr for model in models[: len(known)]] == pytest.approx(expected)
    assert sorted(model.fdr for model in models) == [model.fdr for model in models]
    unknown = [round(model.z, 9) for model in models[len(known) :]]
    assert unknown == sorted(unknown, reverse=True)


def test_a_verdict_needs_more_where_more_families_are_asked():
    strong, *weak = (answer_of(base, [z]) for base, z in (("a", 12.5), ("b", 0.5), ("c", 0.7)))
    assert LONE_BOUND < strong.models[0].probability < 0.95

    alone, *_ = judge_jointly([strong])
    among_three, *_ = judge_jointly([strong, *weak])
    beside_small, *_ = judge_jointly([strong, answer_of("d", [9.0], SMALL)])

    assert alone.models[0].verdict == beside_small.models[0].verdict == "perhaps"
    assert among_three.models[0].verdict == "no model stands out"
    assert among_three.models[0].probability == strong.models[0].probability
    assert among_three.calibration.to_json()["verdict_from"] > LONE_BOUND
