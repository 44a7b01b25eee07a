"""The ablation study on a tiny model, its words with labels, and its choice of tokens."""

import json
import re

import numpy as np
import pytest
import torch
from tiny_language_model import TEXTS, masked_bert, masked_network
from tiny_networks import speaking

from deltadex.errors import StudyError
from deltadex.study.ablation import AblationStudyReport, ablation_study, annotated_words
from deltadex.study.ablation.ablation import Ablation
from deltadex.study.ablation.annotated_words import (
    pseudo_words,
    read_senses,
    read_tags,
    word_shapes,
)
from deltadex.study.ablation.measures import TRAININGS, Training
from deltadex.study.ablation.picture import draw_ablation
from deltadex.study.ablation.subset_study import (
    choose_tokens,
    collect_terms,
    encode_texts,
    items_of_words,
)
from deltadex.study.components.decomposition import branch_constants, decompose
from deltadex.study.network.hidden_states import padded
from deltadex.study.network.language_head import head_alone


def asked(**options):
    return Ablation("m", texts="t", **{"runs": 1, "most_items": 300} | options)


FEW = asked(tasks=("masked",), most_items=100)
SUBSETS = "none i h f c ih if ic hf hc fc ihf ihc ifc hfc ihfc"
WITHOUT_BIAS = "none i h f ih if hf ihf"
QUICK = Training(epochs=2, batch=64, learning_rates=(1e-2,))


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Probes hardly train: these tests are of what surrounds them."""
    with pytest.MonkeyPatch.context() as patch:
        for key in TRAININGS:
            patch.setitem(TRAININGS, key, QUICK)
        yield


def study(**options):
    network = masked_network()
    given = {"asked": asked(), "head": head_alone(masked_bert())} | options
    return ablation_study(network, TEXTS, **given)


@pytest.fixture(scope="module")
def whole():
    return study()


def test_all_measures_of_all_subsets_with_the_baseline(whole):
    assert [m.key for m in whole.measures] == [
        *("masked-own", "masked-trained"),
        *("senses-knn", "senses-mlp", "tagging"),
    ]
    assert whole.skipped == ()
    assert whole.error < 1e-5
    for measure in whole.measures:
        assert [score.label for score in measure.scores] == SUBSETS.split()
        assert len(measure.agreement) == len(measure.agreement[0]) == 16
        assert measure.scores[-1].difference == 0
        assert all(score.low <= score.value <= score.high for score in measure.scores)
        if measure.key != "masked-own":
            assert measure.scores[0].value == pytest.approx(measure.baseline)
    document = json.loads(json.dumps(whole.to_json(), allow_nan=False))
    assert AblationStudyReport.from_json(document) == whole


def test_dots_cells_and_labels_are_the_reports(whole):
    picture = draw_ablation(whole, "column")
    dots = [axes for axes in picture.sheet.axes if axes.get_legend()]
    (shown,) = (axes for axes in picture.sheet.axes if axes.images and axes.get_title())

    drawn = [
        line.get_xdata() for axes in dots for line in axes.lines if len(line.get_xdata()) == 16
    ]
    assert np.array(drawn) == pytest.approx(
        np.array([[score.value for score in measure.scores] for measure in whole.measures])
    )
    assert [label.get_text() for label in dots[0].get_yticklabels()] == SUBSETS.split()
    senses = next(measure for measure in whole.measures if measure.key == "senses-mlp")
    np.testing.assert_allclose(shown.images[0].get_array(), senses.agreement)
    assert len(list(picture.places())) == 5 * 16 + 256


def test_the_own_head_on_all_terms_is_as_good_as_the_model_itself(whole):
    network = masked_network()
    encoded = encode_texts(network, TEXTS, 128)
    chosen = choose_tokens(network, encoded, "masked", most=300, seed=0)
    right = []
    for text, items in zip(chosen.texts, chosen.items, strict=True):
        with torch.no_grad():
            scores = masked_bert()(torch.from_numpy(text.ids)[None]).logits[0].numpy()
        places = np.flatnonzero(items >= 0)
        right += (scores[places].argmax(axis=1) == chosen.targets[items[places]]).tolist()

    own = whole.measures[0]
    assert own.n_items == len(chosen.targets) == len(right)
    assert own.scores[-1].value == pytest.approx(np.mean(right))
    assert own.settings["masked"] == round(0.8 * len(right))


def test_a_causal_model_predicts_the_next_token_and_an_absent_term_is_left_out():
    network = speaking("llama")

    report = ablation_study(network, TEXTS, asked=FEW)

    assert report.absent == ("bias",)
    assert [s.label for s in report.measures[0].scores] == WITHOUT_BIAS.split()
    assert report.measures[0].settings["predicts"] == "next"


def test_a_pseudo_word_stands_where_one_of_its_words_stood(monkeypatch):
    words = pseudo_words(TEXTS, most_items=10_000, seed=0)

    assert len(words.words) >= 2 * 12
    for lemma in {word.lemma for word in words.words}:
        senses = [word.label for word in words.words if word.lemma == lemma]
        first, second = lemma.split("-")
        assert senses.count(first) == senses.count(second) >= 12
    for fed, (_, origin, (start, end), sense, lemma) in zip(words.texts, words.words, strict=True):
        assert fed[start:end] == lemma
        assert fed[:start] + sense + fed[end:] == TEXTS[origin]
        rest = set(re.findall(r"\w+", fed[:start] + fed[end:]))
        assert not rest & set(lemma.split("-"))
    assert len(pseudo_words(TEXTS, most_items=60, seed=0).words) <= 60
    with pytest.raises(StudyError, match="no two words stand in 12 texts"):
        pseudo_words(["a b", "c d"] * 20, most_items=100, seed=0)
    monkeypatch.setattr(annotated_words, "MOST_TEXTS", 12)
    first, again, other = (pseudo_words(TEXTS, most_items=999, seed=s).texts for s in (0, 0, 1))
    assert first == again != other


def test_tokens_belong_to_the_word_that_they_lie_in():
    network = masked_network()
    words = word_shapes(["Cat 42, SUN!"])
    (encoded,) = encode_texts(network, words.texts, 128)

    (items,) = items_of_words([encoded], words.words)

    pieces = network.tokenizer.convert_ids_to_tokens(encoded.ids)
    assert pieces == ["[CLS]", "c", "##a", "##t", "[UNK]", ",", "s", "##u", "##n", "!", "[SEP]"]
    assert items.tolist() == [-1, 0, 0, 0, 1, 2, 3, 3, 3, 4, -1]
    assert [w.label for w in words.words] == ["capital", "number", "sign", "upper", "sign"]


def test_terms_of_a_word_are_the_sums_of_its_pieces_in_batches():
    network = masked_network()
    words = word_shapes(TEXTS[:5])
    encoded = encode_texts(network, words.texts, 8)
    items = items_of_words(encoded, words.words)

    found, seen, _ = collect_terms(network, encoded, items, len(words.words), batch_size=4)

    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    for text, numbers in zip(encoded, items, strict=True):
        batch = padded(network, [text.ids.tolist()], [text.counted])
        terms = decompose(network, stack, batch, constants)[-1].terms[:, 0].numpy()
        for word in set(numbers[numbers >= 0].tolist()):
            expected = terms[:, numbers == word].sum(axis=1)
            np.testing.assert_allclose(found[:, word], expected, rtol=1e-4, atol=1e-5)
    read = set(np.concatenate(items).tolist()) - {-1}
    assert np.flatnonzero(seen).tolist() == sorted(read)
    assert len(read) < len(words.words)  # texts are cut behind eight tokens
    assert not found[:, ~seen].any()


def test_senses_are_read_from_json_lines_and_csv(tmp_path):
    (tmp_path / "s.jsonl").write_text(
        '{"text": "a bank of sand", "lemma": "bank", "sense": "1", "start": 2, "end": 6}\n'
        '{"sentence": "a bank of sand", "lemma": "sand", "sense": "x", "word": 3}\n'
        '{"text": "a bank", "lemma": "bank", "sense": "2", "word": 7}\n'
        '{"text": "a bank", "lemma": "bank", "sense": "2"}\n'
        "no json\n"
        '{"text": "a bank", "lemma": "bank", "word": 1}\n'
    )
    (tmp_path / "s.csv").write_text(
        "sentence,word,lemma,sense\na bank of sand,1,bank,1\na bank of sand,3,sand,x\n"
    )

    lines, table = read_senses(tmp_path / "s.jsonl"), read_senses(tmp_path / "s.csv")

    for words in (lines, table):
        assert words.texts == ("a bank of sand",)
        assert words.words == ((0, 0, (2, 6), "1", "bank"), (0, 0, (10, 14), "x", "sand"))
    assert [line.split(": ")[1] for line in lines.broken] == [
        "its word is not in its text",
        "needs start and end, or word",
        "is not a row with a text",
        "no sense",
    ]
    assert lines.digest != table.digest


def test_tags_are_read_from_columns(tmp_path):
    (tmp_path / "t.conll").write_text(
        "-DOCSTART- -X- O O\n\nSun NNP I-NP B-LOC\nshines VBZ I-VP O\n\nalone\nSun B-LOC\n\n"
        "Sun\tB-LOC\n"
    )

    words = read_tags(tmp_path / "t.conll")

    assert words.texts == ("Sun shines", "Sun", "Sun")
    assert [word.label for word in words.words] == ["B-LOC", "O", "B-LOC", "B-LOC"]
    assert [word.span for word in words.words] == [(0, 3), (4, 10), (0, 3), (0, 3)]
    assert words.broken == ("t.conll:6: not a word and its tag",)
    assert [word.origin for word in words.words] == [0, 0, 1, 1]


def test_shares_of_masked_tokens_are_exact_and_nothing_else_is_touched():
    network = masked_network()
    encoded = encode_texts(network, TEXTS, 128)
    before = [text.ids.copy() for text in encoded]

    found, again, other = (
        choose_tokens(network, encoded, "masked", most=10_000, seed=s) for s in (2, 2, 3)
    )

    n_countable = sum(int(text.counted.sum()) for text in encoded)
    n_chosen = max(1, round(0.15 * n_countable))
    counts = {"masked": round(0.8 * n_chosen), "random": round(0.1 * n_chosen)}
    counts["kept"] = n_chosen - sum(counts.values())
    assert found.settings == {"predicts": "masked", "chosen": 0.15, **counts, "seed": 2}
    assert len(found.targets) == n_chosen
    n_masks = 0
    for row, (text, fed, items) in enumerate(zip(encoded, found.texts, found.items, strict=True)):
        here = items >= 0
        np.testing.assert_array_equal(text.ids, before[row])
        np.testing.assert_array_equal(fed.ids[~here], text.ids[~here])
        np.testing.assert_array_equal(found.targets[items[here]], text.ids[here])
        assert text.counted[here].all()
        assert (found.text[items[here]] == row).all()
        n_masks += int(np.sum(fed.ids == network.tokenizer.mask_token_id))
        assert not set(fed.ids[here]) & (
            set(network.tokenizer.all_special_ids)
            - {network.tokenizer.mask_token_id, network.tokenizer.unk_token_id}
        )
    assert n_masks == counts["masked"]
    np.testing.assert_array_equal(found.targets, again.targets)
    assert found.targets.tolist() != other.targets.tolist()
