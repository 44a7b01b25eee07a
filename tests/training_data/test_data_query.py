"""A data set's fingerprint: sign, order, parts, and what is refused."""

import numpy as np
import pytest
import torch
from catalogs import matrix_update
from tiny_networks import save_folder
from tiny_task_models import gradient_sums, linear_sketch, make_examples, tiny_task_model

from deltadex.data.examples import Example
from deltadex.data.gradients import DataQueryOptions, fingerprint_data, layer_matrices
from deltadex.data.losses import choose_loss
from deltadex.errors import RequestError
from deltadex.indexer.delta import DenseDelta
from deltadex.indexer.fingerprint import UpdateCollector, make_recipe
from deltadex.records import GROUP
from deltadex.store import SketchMatrix
from deltadex.study.network.language_head import load_task_model

RECIPE = make_recipe("sketch", None, ())
FEW_PARTS = DataQueryOptions(parts=2)


@pytest.fixture(scope="module")
def causal():
    return tiny_task_model("llama", "next")


def test_it_lies_along_the_update_of_a_step_of_training(causal):
    examples = make_examples(20)
    found = fingerprint_data(causal, examples, RECIPE, FEW_PARTS)
    loss = choose_loss(causal, examples, max_tokens=64)
    trained = tiny_task_model("llama", "next")
    trained.whole.requires_grad_(True)
    value, _ = choose_loss(trained, examples, max_tokens=64).total(loss.encode(examples))
    value.backward()
    before = {name: p.detach().clone() for name, p in trained.whole.named_parameters()}
    torch.optim.SGD(trained.whole.parameters(), lr=1e-3).step()
    collector = UpdateCollector([RECIPE], ())
    after = dict(trained.whole.named_parameters())

    for placement in layer_matrices(causal.whole, causal.config.to_dict()).placements:
        name = placement.tensor
        delta = DenseDelta(placement.cut(after[name].detach() - before[name]))
        update = matrix_update(placement.slot, delta, placement.shape)
        collector.take(collector.measure(update))

    (step,) = collector.fingerprints()
    assert float(found.fingerprint.vector @ step.vector) > 0.3
    # linear in the update, and with its sign
    sums = gradient_sums(causal, examples)
    linear = linear_sketch(sums, RECIPE), collector.linear_sketch().pooled
    cosine = linear[0] @ linear[1] / np.linalg.norm(linear[0]) / np.linalg.norm(linear[1])
    assert cosine > 0.999


def test_parts_are_of_all_classes_and_of_equal_size():
    model = tiny_task_model("bert", None)
    examples = make_examples(48, label=3)

    found = fingerprint_data(model, examples, RECIPE, DataQueryOptions(parts=4))

    parts = found.parts(GROUP)
    assert (found.loss, found.counts["classes"], found.examples, len(parts)) == (
        "classification", 3, 48, 4
    )  # fmt: skip
    whole = SketchMatrix.of_rows([found.whole], RECIPE)
    for part in parts:
        assert part.keys() == found.whole.keys()
        # a part of the sum is alike, and is not the sum
        assert 0.2 < whole.cosines(SketchMatrix.of_rows([part], RECIPE)).mean() < 0.999


def test_the_scale_of_numbers_does_not_matter_to_a_regression():
    model = tiny_task_model("bert", None)
    examples = make_examples(24, label="number")
    scaled = [Example(text=e.text, label=e.label * 100 + 7) for e in examples]

    one, other = (fingerprint_data(model, e, RECIPE, FEW_PARTS) for e in (examples, scaled))

    assert one.loss == other.loss == "regression"
    assert float(one.fingerprint.vector @ other.fingerprint.vector) > 0.999


def test_only_the_completion_counts(causal):
    examples = make_examples(12, completion=True)
    loss = choose_loss(causal, examples, max_tokens=64)

    encoded = loss.encode(examples)

    n_completion = len(causal.tokenizer("cab ed", add_special_tokens=False)["input_ids"])
    ends = 0 if causal.tokenizer.eos_token_id is None else 1
    for example in encoded:
        assert sum(target >= 0 for target in example.targets) == n_completion + ends
    _, n_predicted = loss.total(encoded)
    assert n_predicted == 12 * (n_completion + ends)


def test_masks_depend_on_the_text_alone():
    model = tiny_task_model("bert", "masked")
    examples = make_examples(6)
    loss = choose_loss(model, examples, max_tokens=64)

    alone, among = loss.encode(examples[2:3]), loss.encode(examples)

    assert alone[0] == among[2]
    assert all(model.tokenizer.mask_token_id in example.ids for example in among)


@pytest.mark.parametrize(
    ("name", "head", "examples", "loss", "message"),
    [
        ("t5", "translated", make_examples(9), None, "name the column of answers"),
        ("bert", None, [Example(text="a", label="x")] * 9, "classification", "every label is"),
        ("bert", None, make_examples(9), "masked", "no masked loss"),
        ("llama", "next", make_examples(3), None, "at least 8"),
    ],
)
def test_what_is_missing_is_said(name, head, examples, loss, message):
    with pytest.raises(RequestError, match=message):
        fingerprint_data(tiny_task_model(name, head), examples, RECIPE, DataQueryOptions(loss=loss))


@pytest.mark.parametrize(
    ("name", "head", "labelled", "expected"),
    [
        ("gpt2", "next", False, ("next", None)),
        ("bert", "masked", False, ("masked", None)),
        ("bert", "masked", True, (None, None)),
        ("bert", None, False, (None, "masked")),
        ("t5", "translated", False, ("translated", None)),
    ],
)
def test_a_checkpoints_head_is_found(tmp_path, name, head, labelled, expected):
    made = tiny_task_model(name, head)
    save_folder(tmp_path, made.whole, tokenizer=made.tokenizer)

    model = load_task_model(str(tmp_path), labelled=labelled)

    assert (model.head, model.missing_head) == expected
    assert not any(parameter.requires_grad for parameter in model.whole.parameters())
    assert model.has_pooler == (name == "bert" and head is None)
