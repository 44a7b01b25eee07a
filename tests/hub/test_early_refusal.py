"""Models refused from their listing alone, and those that must not be."""

from __future__ import annotations

from typing import Any

import pytest

from deltadex.indexer.hub import HubModel, early_refusal
from deltadex.indexer.hub.session import HubSession


def model(*files: str, **fields: Any) -> HubModel:
    siblings = [{"rfilename": name} for name in files or ("model.safetensors",)]
    return HubModel.from_json({"id": "a/b", "sha": "f" * 40, "siblings": siblings, **fields})


def dtypes(**parameters: int) -> dict[str, Any]:
    return {"safetensors": {"parameters": parameters}}


REFUSED = [
    (model(disabled=True), "disabled"),
    (model("m.Q4_K_M.gguf"), "quantized"),
    (model(tags=["base_model:quantized:org/base"]), "quantized"),
    (model(tags=["gptq"]), "quantized"),
    (model(tags=["4-bit", "bitsandbytes"], **dtypes(U8=700, F16=300)), "quantized"),
    (model(config={"quantization_config": {"quant_method": "awq"}}), "quantized"),
    (model(**dtypes(I32=40, F16=60)), "quantized"),
    (model(**dtypes(F8_E4M3=900, BF16=100)), "quantized"),
    (model("README.md", "tf_model.h5"), "no-weights"),
    (model("adapter_config.json"), "no-weights"),
    (model("checkpoint-5/model.safetensors"), "no-weights"),
    (model("a.safetensors", "b.safetensors"), "no-weights"),
]
WORTH_A_TRY = [
    model(),
    model("custom-name.safetensors"),
    model("model.safetensors", "m.Q4.gguf", tags=["gguf"]),
    model(tags=["8-bit"], **dtypes(F32=100)),
    model(**dtypes(F32=124_000_000, U8=12_582_912)),
    model("adapter_config.json", "adapter_model.bin", tags=["4-bit"]),
    model("pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"),
    HubModel(id="a/b", files=None),
]


@pytest.mark.parametrize(("refused", "code"), REFUSED)
def test_a_hopeless_model_is_refused(refused, code, session):
    error = early_refusal(refused, session=session)

    assert error is not None
    assert error.code == code
    assert error.reason.startswith("a/b: ")


@pytest.mark.parametrize("good", WORTH_A_TRY)
def test_a_promising_model_is_not(good, session):
    assert early_refusal(good, session=session) is None


def test_a_gated_model_is_refused_only_to_those_without_a_token(hub, session):
    gated = model(gated="manual")
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)

    error = early_refusal(gated, session=anonymous)

    assert error is not None
    assert error.code == "gated"
    assert early_refusal(gated, session=session) is None


def test_refusing_costs_no_request(hub, session):
    for refused, _ in REFUSED:
        early_refusal(refused, session=session)

    assert hub.log == []
