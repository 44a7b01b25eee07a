"""A model's profile beside its base: fingerprints, their parts, and the stored document."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import torch
from tiny_networks import edited, perturb, speaking, tiny_network

from deltadex.errors import StudyError
from deltadex.study.network import token_states
from deltadex.study.profile import probe_base, probe_texts, profile_model, profile_settings
from deltadex.study.profile.model_profile import last_token_mean
from deltadex.study.profile.profile import prompt_texts

TERMS = ("input", "attention", "feed_forward", "bias")


@pytest.fixture(scope="module")
def base():
    return probe_base(speaking("gpt2", n_layer=2))


@pytest.fixture(scope="module")
def changed(base):
    return edited(base.network, lambda model: perturb(model, by=0.05, seed=1))


@pytest.fixture(scope="module")
def profile(base, changed):
    return profile_model(changed, base)


@pytest.fixture(scope="module")
def own_profile(base):
    return profile_model(edited(base.network, lambda _: None), base)


@pytest.fixture(scope="module")
def encoder_decoder():
    return probe_base(speaking("t5", num_layers=2, num_decoder_layers=2))


def by_recipe(profile):
    return {one.recipe.name: one for one in profile.fingerprints}


def test_the_probe_is_eight_parallel_texts_in_eight_languages_and_the_prompts_are_five():
    texts = probe_texts()

    ids = {group: [t.id for t in texts.entries if t.group == group] for group in texts.groups}
    assert ids == {group: [str(n) for n in range(1, 9)] for group in texts.groups}
    assert len(texts.groups) == 8
    assert all(len(group) == 8 and group[3] == "_" for group in texts.groups)
    assert len(texts.entries) == len({t.text for t in texts.entries}) == 64
    assert texts.broken == ()
    assert len({t.text for t in prompt_texts().entries}) == 5


def test_a_model_that_is_its_own_base_has_no_fingerprints(own_profile):
    document = own_profile.document

    assert own_profile.fingerprints == ()
    assert document["recipes"] == []
    assert document["activation_shift"]["length"] == 0
    assert document["components"]["stacks"]["decoder"]["most_edited"] is None
    assert document["layers"]["base_classifier"] > document["layers"]["chance"]


def test_fingerprints_of_shift_terms_and_prompts_are_read_only_unit_vectors_by_probe(profile):
    names = ["activation-shift", *(f"activation-shift.{term}" for term in TERMS)]
    assert [one.recipe.name for one in profile.fingerprints] == [*names, "delta-activations"]
    assert profile.document["recipes"] == [*names, "delta-activations"]
    for one in profile.fingerprints:
        probe = prompt_texts() if one.recipe.name == "delta-activations" else probe_texts()
        assert one.vector.shape == (32,)
        assert one.recipe.dim == 32
        assert np.linalg.norm(one.vector) == pytest.approx(1.0, abs=1e-5)
        assert not one.vector.flags.writeable
        assert dict(one.recipe.params) == {"probe": probe.digest}


def test_the_shifts_of_the_terms_sum_to_the_whole(profile):
    parts = {name: one.vector * one.norm for name, one in by_recipe(profile).items()}
    whole = parts["activation-shift"]

    terms = sum(parts[f"activation-shift.{term}"] for term in TERMS)

    lengths = {name: np.linalg.norm(part) for name, part in parts.items()}
    assert np.linalg.norm(terms - whole) <= 1e-5 * lengths["activation-shift"]
    shift = profile.document["activation_shift"]
    assert shift["length"] == pytest.approx(lengths["activation-shift"])
    assert shift["by_term"]["attention"] == pytest.approx(lengths["activation-shift.attention"])


def test_the_shift_is_the_difference_of_the_mean_tokens_after_the_final_norm(
    profile, base, changed
):
    means = []
    for network in (changed, base.network):
        rows = [
            network.model.ln_f(torch.from_numpy(batch.hidden[-1])).detach().numpy()
            for batch in token_states(network, probe_texts().entries)
        ]
        means.append(np.concatenate(rows).mean(axis=0, dtype=np.float64))

    whole = by_recipe(profile)["activation-shift"]

    assert np.linalg.norm(means[0] - means[1] - whole.vector * whole.norm) <= 1e-4 * whole.norm


def test_delta_activations_are_of_each_prompts_last_token(profile, base, changed):
    def last(network):
        rows = []
        for text in prompt_texts().entries:
            ids = network.tokenizer(text.text, truncation=True, return_tensors="pt").input_ids
            with torch.inference_mode():
                rows.append(network.model(input_ids=ids).last_hidden_state[0, -1].numpy())
        return np.mean(rows, axis=0, dtype=np.float64)

    found = by_recipe(profile)["delta-activations"]

    expected = last(changed) - last(base.network)
    assert np.linalg.norm(expected - found.vector * found.norm) <= 1e-4 * found.norm


@pytest.mark.parametrize("which", ["profile", "own_profile"])
def test_the_document_is_strict_json(which, request):
    document = request.getfixturevalue(which).document

    read = json.loads(json.dumps(document, allow_nan=False))

    assert read["settings"] == json.loads(json.dumps(profile_settings()))
    assert (read["n_layers"], read["dim"]) == (2, 32)
    assert read["base"] == "gpt2"
    assert {len(read["geometry"][k]) for k in ("anisotropy_centred", "mean_cosine")} == {3}
    assert len(read["layers"]["base_classifier_recall"]) == 3
    assert all(seconds >= 0 for seconds in read["seconds"].values())


def test_equal_models_have_equal_profiles_but_for_the_time(profile, base, changed):
    again = profile_model(changed, base)

    timeless = [
        {key: value for key, value in one.document.items() if key != "seconds"}
        for one in (profile, again)
    ]
    assert timeless[0] == timeless[1]
    for one, other in zip(profile.fingerprints, again.fingerprints, strict=True):
        assert np.array_equal(one.vector, other.vector)


def test_models_without_a_tokenizer_and_of_another_depth_are_refused(base, changed):
    mute = dataclasses.replace(changed, tokenizer=None, name="mute")

    with pytest.raises(StudyError, match="gpt2 has no tokenizer"):
        probe_base(tiny_network("gpt2"))
    with pytest.raises(StudyError, match="mute has no tokenizer"):
        profile_model(mute, base)
    with pytest.raises(StudyError, match="not built alike"):
        profile_model(speaking("gpt2"), base)


def test_an_encoder_decoder_is_profiled_at_its_decoder(encoder_decoder):
    found = profile_model(
        edited(
            encoder_decoder.network,
            lambda m: m.decoder.block[1].layer[1].EncDecAttention.v.weight.mul_(1.2),
        ),
        encoder_decoder,
    )

    assert "activation-shift.source" in by_recipe(found)
    json.dumps(found.document, allow_nan=False)


def test_an_edited_embedding_alone_moves_the_input(base):
    moved = edited(base.network, lambda model: model.wte.weight.mul_(1.2))

    assert "activation-shift.input" in by_recipe(profile_model(moved, base))


@contextlib.contextmanager
def texts_read(*networks):
    """How many texts each network is given, by the number of its name."""
    read = [[] for _ in networks]
    with contextlib.ExitStack() as hooks:
        for network, texts in zip(networks, read, strict=True):

            def count(_, __, inputs, texts=texts):
                texts.append(len(inputs["input_ids"]))

            hooks.enter_context(network.model.register_forward_pre_hook(count, with_kwargs=True))
        yield read


@pytest.mark.parametrize("which", ["base", "encoder_decoder"])
def test_a_profile_runs_each_model_once_over_each_probe_text(which, request):
    base = request.getfixturevalue(which)
    changed = edited(base.network, lambda model: perturb(model, by=0.05, seed=1))

    with texts_read(changed, base.network) as (mine, theirs):
        profile_model(changed, base)

    probe = [1, 16, 16, 16, 16]  # the first for the constants
    assert sorted(mine) == sorted([*probe, len(prompt_texts().entries)])
    assert sorted(theirs) == probe


def test_a_base_is_run_once_over_each_probe_text():
    network = speaking("bert")

    with texts_read(network) as (mine,):
        base = probe_base(network)

    assert sorted(mine) == [1, 5, 16, 16, 16, 16]
    hidden = [batch.hidden[-1] for batch in token_states(network, probe_texts().entries)]
    expected = np.concatenate(hidden).mean(axis=0, dtype=np.float64)
    assert np.linalg.norm(base.terms.sum(axis=0) - expected) <= 1e-5 * np.linalg.norm(expected)


def test_the_last_token_of_bert_is_its_separator():
    network = speaking("bert")
    texts = prompt_texts().entries[:2]

    found = last_token_mean(network, texts)

    (batch,) = token_states(network, texts, keep_special=True, keep_first=True, max_tokens=512)
    ends = batch.token == 3
    assert ends.sum() == 2
    expected = batch.hidden[-1][ends].mean(axis=0)
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)
