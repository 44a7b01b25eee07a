"""The logit lens against transformers' own logits and loss, by hand, and what it refuses."""

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import peft
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_networks import (
    CONFIGS,
    DIM,
    ids_of,
    make_texts,
    make_tokenizer,
    one_of_each_structure,
    perturb,
    save_folder,
    tiny_model,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from deltadex.errors import StudyError
from deltadex.study.lens.lens_report import decided_from, lens_study, predicted_characters
from deltadex.study.network.language_head import as_causal, load_causal
from deltadex.study.texts import Text

IDS = make_texts(5, 12, 9, 3)
LETTERS = tuple(Text(text, "", text) for text in ("the cat sat", "rain, again!", "who is singing?"))
SCALED = {
    "gemma2": dict(final_logit_softcapping=0.5),
    "cohere": dict(logit_scale=0.3),
    "granite": dict(logits_scaling=7.0),
}
OTHERS = {**MODEL_FOR_MASKED_LM_MAPPING_NAMES, **MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES}
TYPES = [
    name
    for name, options in CONFIGS.items()
    if name.split(",")[0] in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys() - OTHERS.keys()
    and options.get("word_embed_proj_dim", DIM) == DIM  # the lens refuses others
]
BITS = 1 / np.log(2)


@functools.cache
def causal(name, *, seed=0, tokenizer=False, **changes):
    whole = tiny_model(name, "ForCausalLM", seed=seed, **SCALED.get(name, {}), **changes)
    return as_causal(name, whole, make_tokenizer() if tokenizer else None)


@pytest.mark.parametrize("name", [n for n in one_of_each_structure() if n.values[0] in TYPES])
def test_the_last_layer_has_the_models_own_loss_and_predictions(name):
    model = causal(name)

    report = lens_study(model, IDS)

    losses, top = [], []
    with torch.inference_mode():
        for text in IDS:
            output = model.whole(input_ids=ids_of(text), labels=ids_of(text))
            losses += [float(output.loss) * BITS] * (ids_of(text).shape[1] - 1)
            top.append(output.logits[0, :-1].argmax(dim=1))
    assert report.n_tokens == len(losses) == 25
    assert report.bits_per_token == pytest.approx(np.mean(losses), rel=1e-5)
    last = report.layers[-1]
    assert (last.agreement, last.kl, last.decided) == (1.0, 0.0, 1.0)
    assert report.bits_per_character is None
    assert len(TYPES) >= 30


def test_an_inner_layer_is_norm_and_head_of_its_state():
    model = causal("gpt2")
    whole = model.whole

    report = lens_study(model, IDS, batch_size=2)

    bits, kl, same = [], [], []
    with torch.inference_mode():
        for text in IDS:
            ids = ids_of(text)
            output = whole(input_ids=ids, output_hidden_states=True)
            log = whole.lm_head(whole.transformer.ln_f(output.hidden_states[2])).log_softmax(-1)[0]
            own = output.logits.log_softmax(-1)[0]
            bits += (-log[:-1].gather(1, ids[0, 1:, None])[:, 0]).tolist()
            kl += (own.exp() * (own - log)).sum(1)[:-1].tolist()
            same += (own.argmax(1) == log.argmax(1))[:-1].tolist()
    found = report.layers[2]
    assert found.bits_per_token == pytest.approx(np.mean(bits) * BITS, rel=1e-5)
    assert found.kl == pytest.approx(np.mean(kl) * BITS, rel=1e-4)
    assert found.agreement == pytest.approx(np.mean(same))


@settings(deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda layers: st.lists(st.tuples(*[st.integers(0, 2)] * layers), min_size=1, max_size=9)
    )
)
def test_a_token_is_decided_by_the_first_layer_of_its_last_run(tokens):
    found = decided_from(np.array(tokens, dtype=np.int64).T)

    for column, first in zip(tokens, found.tolist(), strict=True):
        assert all(top == column[-1] for top in column[first:])
        assert first == 0 or column[first - 1] != column[-1]


def test_characters_are_those_after_the_first_token_up_to_the_cut():
    with_start = causal("gpt2", tokenizer=True)  # [CLS] before, [SEP] behind
    plain = make_tokenizer()
    plain._tokenizer.post_processor = None
    network = dataclasses.replace(with_start.network, tokenizer=plain)
    without = dataclasses.replace(with_start, network=network)

    whole = predicted_characters(with_start, LETTERS, 64)
    rest = predicted_characters(without, LETTERS, 64)
    cut = predicted_characters(without, LETTERS, 4)

    assert whole.tolist() == [len(text.text) for text in LETTERS]
    assert rest.tolist() == [len("the cat sat") - 3, len("rain, again!") - 1, 14]
    assert cut.tolist() == [len(" cat"), len("ain"), len("ho i")]
    report = lens_study(without, LETTERS)
    assert report.n_characters == int(rest.sum())
    bits = report.bits_per_token * report.n_tokens / report.n_characters
    assert report.bits_per_character == pytest.approx(bits)


def test_a_model_beside_itself_differs_in_nothing_and_beside_another_in_something():
    model = causal("llama", tokenizer=True)

    own = SimpleNamespace(**lens_study(model, LETTERS, against=model).against)
    other = lens_study(model, LETTERS, against=causal("llama", seed=1, tokenizer=True))

    assert own.same_top == [1.0] * 4
    assert (own.bits_per_token.value, own.decided_earlier.value) == (0.0, 0.0)
    beside = SimpleNamespace(**other.against)
    difference = other.bits_per_character - beside.other.bits_per_character
    assert beside.bits_per_character.value == pytest.approx(difference, rel=1e-4)
    assert beside.bits_per_character.standard_error > 0
    assert beside.same_answer.value < 1
    deeper = lens_study(causal("llama"), IDS, against=causal("gpt2", n_layer=5)).against
    assert deeper["same_top"] is None  # compared by share of depth
    assert abs(deeper["decided_earlier"].value) <= 1


@pytest.fixture
def folder(tmp_path):
    def save(name, auto="ForCausalLM", but=(), **changes):
        model = tiny_model(name, auto, **changes)
        save_folder(tmp_path / "model", model, tokenizer=make_tokenizer(), but=but)
        return str(tmp_path / "model")

    return save


@pytest.mark.parametrize(
    ("saved", "line"),
    [
        (
            dict(name="gpt2", auto="ForSequenceClassification"),
            "saved as GPT2ForSequenceClassification, without a language-model head",
        ),
        (
            dict(name="llama", auto="", tie_word_embeddings=False),
            "no weights for its head: it was saved without",
        ),
        (
            dict(name="llama", but=("model.layers.1.mlp.up_proj.weight",)),
            r"no weights for model\.layers\.1\.mlp\.up_proj\.weight \(1 tensor missing\)",
        ),
    ],
)
def test_a_model_without_a_causal_head_is_refused_in_one_line(folder, saved, line):
    with pytest.raises(StudyError, match=line) as caught:
        load_causal(folder(**saved))

    assert "\n" not in str(caught.value)


def test_a_head_that_is_more_than_norm_and_matrix_is_refused():
    doubled = causal("llama", seed=2)
    head = torch.nn.Sequential(torch.nn.LayerNorm(32), doubled.whole.lm_head)
    doubled.head.__dict__["_modules"] = {**doubled.head._modules, "lm_head": head}

    for model in (causal("opt", word_embed_proj_dim=16), doubled):
        with pytest.raises(StudyError, match="its head is more than a final norm and a matrix"):
            lens_study(model, IDS)


def test_texts_without_a_token_to_predict_and_nan_are_refused():
    broken = causal("gpt2", seed=9)
    with pytest.raises(StudyError, match="no token to predict"):
        lens_study(causal("gpt2"), make_texts(1, 1))
    with torch.no_grad():
        broken.whole.transformer.h[1].mlp.c_proj.bias[0] = float("nan")
    with pytest.raises(StudyError, match="layer 2 of gpt2 predicts NaN"):
        lens_study(broken, IDS)


@pytest.mark.parametrize("task", ["CAUSAL_LM", "SEQ_CLS"])
def test_an_adapter_is_merged_under_its_bases_head(folder, tmp_path, task):
    base = folder("llama")
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    before = plain.model.layers[0].self_attn.q_proj.weight.clone()
    config = peft.LoraConfig(task_type=task, r=2, target_modules=["q_proj"])
    tuned = peft.get_peft_model(plain, config)
    perturb(tuned, by=0.05)
    tuned.save_pretrained(tmp_path / "adapter")

    if task == "SEQ_CLS":
        with pytest.raises(StudyError, match="an adapter for SEQ_CLS has no language-model head"):
            load_causal(str(tmp_path / "adapter"), base=base)
    else:
        model = load_causal(str(tmp_path / "adapter"), base=base)
        assert model.network.tokenizer is not None
        assert not torch.equal(model.whole.model.layers[0].self_attn.q_proj.weight, before)
