"""Masked tokens from subsets: with a real head on an exact decomposition, and with a new one."""

from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from tiny_language_model import TEXTS, masked_network

from deltadex.errors import StudyError
from deltadex.study.ablation import ablation_report
from deltadex.study.ablation.measures import Training, masked_accuracy, trained_masked_accuracy
from deltadex.study.ablation.subset_study import choose_tokens, encode_texts
from deltadex.study.ablation.subsets import Items, Split, term_subsets
from deltadex.study.network.language_head import LanguageHead

NAMES = ("input", "attention", "feed_forward", "bias")
QUICK = Training(epochs=15, batch=64, learning_rates=(1e-3, 3e-2), runs=2)


def make_items(terms, targets, split=None, text=None):
    return Items(
        terms=terms,
        names=NAMES,
        labels=np.asarray(targets, dtype=np.int64),
        text=np.arange(len(targets)) if text is None else text,
        split=split,
        settings={"predicts": "masked"},
    )


def make_planted(n=300, dim=12, classes=4, carrier=1, seed=0):
    """Terms of which one alone says what the target is; targets spread over all classes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes, size=n)
    terms = rng.normal(scale=0.1, size=(4, n, dim)).astype(np.float32)
    terms[carrier] += 3 * np.eye(classes, dim, dtype=np.float32)[targets]
    return terms, targets


class FunctionHead(LanguageHead):
    """A head that is a plain function of the rows."""

    def __init__(self, scores):
        super().__init__(torch.nn.Linear(1, 1), "masked")
        object.__setattr__(self, "function", scores)

    @property
    def device(self):
        return torch.device("cpu")

    def scores(self, rows):
        with torch.no_grad():
            return self.function(rows)


def planted_head(dim=12, classes=4):
    weight = torch.eye(dim, classes)
    return FunctionHead(lambda rows: rows @ weight)


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=20,
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def decompose(model, tokens):
    """The four terms at the last layer, (4, texts × tokens, dim): internals 2.1, by its sums."""
    terms = {}
    hooks = []

    def norm_hook(norm):
        def hook(_, args):
            y = args[0]
            if not terms:
                terms.update({name: torch.zeros_like(y) for name in NAMES}, input=y.clone())
            scale = norm.weight / torch.sqrt(y.var(-1, correction=0, keepdim=True) + norm.eps)
            terms["bias"] = terms["bias"] - y.mean(-1, keepdim=True)
            for name in NAMES:
                terms[name] = terms[name] * scale
            terms["bias"] = terms["bias"] + norm.bias

        return norm.register_forward_pre_hook(hook)

    def branch_hook(linear, name, constant):
        def hook(_, __, output):
            terms[name] = terms[name] + output - constant
            terms["bias"] = terms["bias"] + constant

        return linear.register_forward_hook(hook)

    hooks.append(norm_hook(model.bert.embeddings.LayerNorm))
    for layer in model.bert.encoder.layer:
        out = layer.attention.output.dense
        value = layer.attention.self.value.bias
        hooks.append(branch_hook(out, "attention", out.weight @ value + out.bias))
        hooks.append(norm_hook(layer.attention.output.LayerNorm))
        hooks.append(branch_hook(layer.output.dense, "feed_forward", layer.output.dense.bias))
        hooks.append(norm_hook(layer.output.LayerNorm))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)).logits
    for hook in hooks:
        hook.remove()
    stacked = torch.stack([terms[name] for name in NAMES]).flatten(1, 2)
    return stacked.detach().numpy(), logits.flatten(0, 1).numpy()


def test_the_head_on_the_full_sum_gives_the_models_own_logits(bert):
    tokens = np.random.default_rng(0).integers(60, size=(6, 12))
    terms, logits = decompose(bert, tokens)
    full = term_subsets(NAMES)[-1].sum(terms)
    head = FunctionHead(bert.cls)

    scores = head.scores(torch.from_numpy(full)).numpy()
    predictions = masked_accuracy(make_items(terms, tokens.ravel()), head)

    np.testing.assert_allclose(scores, logits, atol=3e-6 * np.abs(logits).max())
    np.testing.assert_array_equal(predictions.predicted[0, -1], logits.argmax(axis=1))
    assert len(np.unique(predictions.predicted[0], axis=0)) > 1


def test_only_subsets_with_the_planted_term_are_right():
    holding_chance = Counter()
    for seed in range(100):
        terms, targets = make_planted(seed=seed)
        report = ablation_report(masked_accuracy(make_items(terms, targets), planted_head()))
        for score in report.scores:
            if "attention" in score.terms:
                assert score.value == 1.0
            else:
                holding_chance[score.label] += score.low < 0.25 < score.high
        assert report.n_items == 300

    # 95 % intervals: 95 of 100 hold chance, s.e. √(100 · 0.95 · 0.05) = 2.2; five below
    assert len(holding_chance) == 8
    assert min(holding_chance.values()) >= 84


def test_the_head_is_asked_in_blocks_with_the_same_result(monkeypatch):
    items = make_items(*make_planted(n=100))
    whole = masked_accuracy(items, planted_head()).predicted

    monkeypatch.setattr("deltadex.study.ablation.measures.HEAD_TOKENS", 7)

    np.testing.assert_array_equal(masked_accuracy(items, planted_head()).predicted, whole)


def test_nan_in_terms_or_scores_is_refused():
    terms, targets = make_planted(n=20)

    with pytest.raises(StudyError, match="scores NaN on 'none'"):
        masked_accuracy(make_items(terms, targets), FunctionHead(lambda rows: rows * torch.nan))
    terms[0, 3] = np.nan
    with pytest.raises(StudyError, match="'input' of item 3"):
        masked_accuracy(make_items(terms, targets), planted_head())


def test_a_trained_layer_finds_the_planted_term_and_nothing_else():
    report = ablation_report(trained_masked_accuracy(make_items(*make_planted(n=600)), QUICK))

    for score in report.scores:
        if "attention" in score.terms:
            assert score.value == 1.0
        else:
            assert score.value < 0.45
    assert report.n_items == 60
    assert report.n_runs == 2
    assert report.settings["split"] == {"train": 480, "validation": 60, "test": 60, "seed": 0}
    assert set(report.settings["chosen_learning_rates"]) == {s.label for s in report.scores[1:]}


def test_training_again_gives_the_same_and_runs_differ():
    items = make_items(*make_planted(n=60))
    training = Training(epochs=2, batch=16, learning_rates=(1e-2,), runs=2)

    first, again = (trained_masked_accuracy(items, training) for _ in range(2))

    np.testing.assert_array_equal(first.predicted, again.predicted)
    assert not np.array_equal(first.predicted[0], first.predicted[1])


def test_a_target_never_trained_on_is_counted_wrong():
    terms, targets = make_planted(n=60)
    targets = targets + 100
    split = Split(np.arange(40), np.arange(40, 50), np.arange(50, 60))
    targets[50] = 7

    predictions = trained_masked_accuracy(make_items(terms, targets, split), QUICK)

    assert predictions.settings["test_targets_never_trained"] == 1
    assert predictions.settings["split"]["seed"] is None
    assert (predictions.predicted >= 100).all()
    assert ablation_report(predictions).scores[-1].value == pytest.approx(0.9)


def test_the_rate_that_the_validation_items_like_is_taken():
    training = Training(epochs=5, batch=32, learning_rates=(1e-7, 3e-2), runs=1)

    predictions = trained_masked_accuracy(make_items(*make_planted(n=200)), training)

    assert predictions.settings["chosen_learning_rates"]["ihfc"] == 3e-2


def test_the_length_of_terms_does_not_matter_to_training():
    terms, targets = make_planted(n=100)

    short = trained_masked_accuracy(make_items(terms, targets), QUICK)
    long = trained_masked_accuracy(make_items(terms * np.float32(1024), targets), QUICK)

    np.testing.assert_array_equal(short.predicted, long.predicted)


def test_one_target_or_too_few_texts_are_refused():
    terms, targets = make_planted(n=60)

    with pytest.raises(StudyError, match="one target, id 9"):
        trained_masked_accuracy(make_items(terms, np.full(60, 9)), QUICK)
    one_text = make_items(terms, targets, text=np.zeros(60, dtype=np.int64))
    with pytest.raises(StudyError, match="no test items among 60"):
        trained_masked_accuracy(one_text, QUICK)


@pytest.mark.parametrize("seed", range(3))
def test_shares_of_masked_tokens_are_exact_and_nothing_else_is_touched(seed):
    network = masked_network()
    encoded = encode_texts(network, TEXTS, 128)
    before = [text.ids.copy() for text in encoded]

    found, again, other = (
        choose_tokens(network, encoded, "masked", most=10_000, seed=s)
        for s in (seed, seed, seed + 1)
    )

    n_countable = sum(int(text.counted.sum()) for text in encoded)
    n_chosen = max(1, round(0.15 * n_countable))
    counts = {"masked": round(0.8 * n_chosen), "random": round(0.1 * n_chosen)}
    counts["kept"] = n_chosen - sum(counts.values())
    assert found.settings == {"predicts": "masked", "chosen": 0.15, **counts, "seed": seed}
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


def test_every_position_is_chosen_about_equally_often():
    network = masked_network()
    encoded = encode_texts(network, TEXTS[:8], 128)
    counts = [np.zeros(len(text.ids)) for text in encoded]
    for seed in range(1000):
        chosen = choose_tokens(network, encoded, "masked", most=1000, seed=seed)
        for count, items in zip(counts, chosen.items, strict=True):
            count += items >= 0

    drawn = np.concatenate([c[t.counted] for c, t in zip(counts, encoded, strict=True)])
    # binomial (1000, .15): sd 11.3; four and a half of them
    assert abs(drawn - 1000 * round(0.15 * len(drawn)) / len(drawn)).max() < 51


def test_special_tokens_only_are_refused():
    network = masked_network()

    with pytest.raises(StudyError, match="no position may be masked"):
        choose_tokens(network, encode_texts(network, [""], 8), "masked", most=9, seed=0)
