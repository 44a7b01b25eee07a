"""The whole study on a tiny model: against the model itself, continued, and on planted words."""

import json

import numpy as np
import pytest
import torch
from tiny_language_model import TEXTS, masked_bert, masked_network
from tiny_networks import make_tokenizer, tiny_network

from deltadex.errors import StudyError
from deltadex.study.ablation import AblationStudyReport, Journal, ablation_study
from deltadex.study.ablation.ablation import Ablation
from deltadex.study.ablation.measures import TRAININGS, Training
from deltadex.study.ablation.subset_study import choose_tokens, encode_texts
from deltadex.study.ablation.subsets import SubsetResult
from deltadex.study.network.language_head import attach_head


def asked(**options):
    return Ablation("m", texts="t", **{"runs": 1, "most_items": 300} | options)


SUBSETS = "none i h f c ih if ic hf hc fc ihf ihc ifc hfc ihfc"
WITHOUT_BIAS = "none i h f ih if hf ihf"
QUICK = Training(epochs=2, batch=64, learning_rates=(1e-2,))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Probes hardly train: these tests are of what surrounds them."""
    for key in TRAININGS:
        monkeypatch.setitem(TRAININGS, key, QUICK)


def study(**options):
    network = masked_network()
    given = {"asked": asked(), "head": attach_head(masked_bert(), network, "masked")} | options
    return ablation_study(network, TEXTS, **given)


def test_all_measures_of_all_subsets_with_the_baseline():
    report = study()

    assert [m.key for m in report.measures] == [
        "masked-own",
        "masked-trained",
        "senses-knn",
        "senses-mlp",
        "senses-mlp-lemma",
        "tagging",
    ]
    assert report.skipped == ()
    assert report.error < 1e-5
    for measure in report.measures:
        assert [score.label for score in measure.scores] == SUBSETS.split()
        assert len(measure.agreement) == len(measure.agreement[0]) == 16
        assert measure.scores[-1].difference == 0
        assert all(score.low <= score.value <= score.high for score in measure.scores)
        if measure.key != "masked-own":
            assert measure.scores[0].value == pytest.approx(measure.baseline)
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert AblationStudyReport.from_json(document) == report


def test_the_own_head_on_all_terms_is_as_good_as_the_model_itself():
    network = masked_network()
    encoded = encode_texts(network, TEXTS, 128)
    chosen = choose_tokens(network, encoded, "masked", most=300, seed=0)
    right = []
    for text, items in zip(chosen.texts, chosen.items, strict=True):
        with torch.no_grad():
            scores = masked_bert()(torch.from_numpy(text.ids)[None]).logits[0].numpy()
        places = np.flatnonzero(items >= 0)
        right += (scores[places].argmax(axis=1) == chosen.targets[items[places]]).tolist()

    report = study(asked=asked(tasks=("masked",)))

    own = report.measures[0]
    assert own.n_items == len(chosen.targets) == len(right)
    assert own.scores[-1].value == pytest.approx(np.mean(right))
    assert own.settings["masked"] == round(0.8 * len(right))


def test_an_interrupted_study_continues_where_it_stopped(tmp_path):
    whole = study()
    first = Journal.open(tmp_path, {"seed": 0})
    made = []

    def stopping(measure, subset, make):
        if len(made) == 20:
            raise KeyboardInterrupt
        made.append((measure, subset))
        return first(measure, subset, make)

    with pytest.raises(KeyboardInterrupt):
        study(keep=stopping)
    first.path.write_bytes(first.path.read_bytes() + b'{"measure": "tagg')
    second = Journal.open(tmp_path, {"seed": 0})
    made_again = []

    def watching(measure, subset, make):
        return second(measure, subset, lambda: made_again.append((measure, subset)) or make())

    continued = study(keep=watching)

    assert continued == whole
    assert len(made_again) == 6 * 16 - 20
    assert not set(made) & set(made_again)
    assert not Journal.open(tmp_path, {"seed": 1}).known
    second.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_cannot_be_written_is_no_error(tmp_path, caplog):
    (tmp_path / "file").write_text("")

    journal = Journal.open(tmp_path / "file" / "folder", {})
    result = journal("a", "i", lambda: SubsetResult(np.zeros((1, 2), dtype=np.int64)))

    assert result.predicted.shape == (1, 2)
    assert "progress cannot be kept" in caplog.text
    journal.remove()


def test_a_model_without_a_head_says_so_in_one_line():
    report = study(
        head="bert: ships no language head",
        asked=asked(tasks=("masked",), most_items=100),
    )

    assert [m.key for m in report.measures] == ["masked-trained"]
    assert [(s.measure, s.reason) for s in report.skipped] == [
        ("masked-own", "bert: ships no language head")
    ]


def test_a_causal_model_predicts_the_next_token_and_an_absent_term_is_left_out():
    llama = tiny_network("llama")
    network = type(llama)(
        name="llama", model=llama.model, tokenizer=make_tokenizer(), stacks=llama.stacks
    )

    report = ablation_study(network, TEXTS, asked=asked(tasks=("masked",), most_items=100))

    assert report.absent == ("bias",)
    assert [s.label for s in report.measures[0].scores] == WITHOUT_BIAS.split()
    assert report.measures[0].settings["predicts"] == "next"
    assert report.measures[0].measure == "next tokens, linear layer trained"


@pytest.mark.parametrize(
    ("network", "texts", "line"),
    [
        (masked_network, ["one"] * 20, "1 different texts; give 10"),
        (lambda: tiny_network("bert"), TEXTS, "no tokenizer"),
    ],
)
def test_what_cannot_be_measured_is_refused(network, texts, line):
    with pytest.raises(StudyError, match=line):
        ablation_study(network(), texts, asked=asked())


def test_next_tokens_are_those_that_follow():
    network = masked_network()
    encoded = encode_texts(network, TEXTS, 128)

    chosen = choose_tokens(network, encoded, "next", most=100, seed=3)

    assert len(chosen.targets) == len(np.unique(np.concatenate(chosen.items))) - 1
    for text, items in zip(chosen.texts, chosen.items, strict=True):
        for place in np.flatnonzero(items >= 0):
            assert chosen.targets[items[place]] == text.ids[place + 1]
            assert text.counted[place]
            assert text.counted[place + 1]
