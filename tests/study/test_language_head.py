"""Heads of models around their headless parts, against the models themselves."""

import peft
import pytest
import torch
import transformers
from tiny_language_model import masked_bert, masked_network, save_masked
from tiny_networks import as_network, make_texts, perturb, tiny_config, tiny_network

from deltadex.errors import StudyError
from deltadex.study.components.decomposition import branch_constants, decompose
from deltadex.study.network import load_head, load_network
from deltadex.study.network.hidden_states import encoded
from deltadex.study.network.language_head import attach_head, prediction_of

TYPES = ("roberta", "distilbert", "deberta-v2", "electra", "gpt2", "opt", "mixtral", "gemma2")


@pytest.mark.parametrize("name", TYPES)
def test_the_head_on_the_sum_of_terms_gives_the_models_own_scores(name):
    config = tiny_config(name)
    masked = type(config) in transformers.AutoModelForMaskedLM._model_mapping
    kind = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    torch.manual_seed(0)
    model = kind.from_config(config).float().eval()
    perturb(model, by=0.1)
    network = as_network(getattr(model, model.base_model_prefix), name)
    (batch,) = encoded(network, make_texts(7, 5), keep_special=True, keep_first=True)
    with torch.no_grad():
        expected = model(**batch.inputs(network)).logits[batch.mask.bool()]
    stack = network.stacks[0]
    last = decompose(network, stack, batch, branch_constants(network, stack))[-1]

    head = attach_head(model, network, "masked" if masked else "next")
    scores = head.scores(last.terms.sum(0)[batch.mask.bool()])

    assert float((scores - expected).abs().max() / expected.abs().max()) < 1e-5
    with torch.no_grad():  # and the network still runs
        again = network.model(**batch.inputs(network)).last_hidden_state
    assert again.shape[-1] == network.dim


def test_a_checkpoint_with_a_head_gives_it_and_one_without_says_so(tmp_path):
    whole = save_masked(tmp_path / "whole")
    headless = save_masked(tmp_path / "headless", head=False)
    rows = torch.randn(4, 32, generator=torch.Generator().manual_seed(0))

    head = load_head(str(whole), load_network(str(whole)))

    with torch.no_grad():
        torch.testing.assert_close(head.scores(rows), masked_bert().cls(rows))
    with pytest.raises(StudyError, match="ships no language head"):
        load_head(str(headless), load_network(str(headless)))


@pytest.mark.parametrize(
    ("changed", "options"),
    [
        (None, {"target_modules": ["query"]}),
        ("cls", {"target_modules": ["query"], "modules_to_save": ["cls"]}),
        ("cls", {"target_modules": ["query", "dense"]}),
        ("cls", {"target_modules": r".*(query|transform\.dense)"}),
    ],
)
def test_an_adapter_has_the_head_of_its_base_unless_it_changes_it(tmp_path, changed, options):
    base = save_masked(tmp_path / "base")
    whole = transformers.AutoModelForMaskedLM.from_pretrained(base)
    adapted = peft.get_peft_model(whole, peft.LoraConfig(r=2, **options))
    adapted.save_pretrained(tmp_path / "adapter")

    if changed is None:
        head = load_head(str(tmp_path / "adapter"), masked_network(), base=str(base))
        assert head.predicts == "masked"
    else:
        with pytest.raises(StudyError, match=f"changes its base's head .{changed}"):
            load_head(str(tmp_path / "adapter"), masked_network(), base=str(base))


def test_what_is_predicted_follows_the_architecture():
    assert prediction_of(masked_network()) == "masked"
    assert prediction_of(tiny_network("gpt2")) == "next"
    assert prediction_of(tiny_network("t5")) is None
    assert prediction_of(tiny_network("bert")) is None  # no tokenizer, so no mask
