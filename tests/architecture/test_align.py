"""Alignment: what a child may lack, add or change against its base, and what it may not."""

import pytest
from tiny_models import saved

from deltadex.errors import ModelError
from deltadex.indexer import architecture


def test_a_fused_matrix_split_on_one_side_only_blames_the_config():
    base = architecture.place(saved("bloom").shapes, saved("bloom").config)
    child = architecture.place(saved("bloom").shapes, None)

    with pytest.raises(ModelError, match=r"layer-mismatch: .*config\.json does not say how"):
        architecture.require_same_layers(child, base)


@pytest.mark.parametrize(
    ("layer", "width", "said"),
    [
        (7, 32, r"^unknown-targets: .*no decoder.7.q \(modules 'model.layers.7.self_attn.q_proj'"),
        (1, 64, r"^shape-mismatch: .*\(64, 64\), the base has \(32, 32\)"),
    ],
)
def test_an_adapter_on_some_modules_fits_and_one_of_a_deeper_or_wider_model_is_refused_by_its_own(
    layer, width, said
):
    base = architecture.place(saved("llama").shapes, saved("llama").config)
    fits = {"base_model.model.model.layers.1.self_attn.q_proj": (32, 32)}
    module = {f"model.layers.{layer}.self_attn.q_proj": (width, width)}

    architecture.require_within_base(architecture.place_modules(fits, None), base)
    with pytest.raises(ModelError, match=said):
        architecture.require_within_base(architecture.place_modules(module, None), base)
