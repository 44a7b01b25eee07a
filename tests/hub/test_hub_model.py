"""What is made of the Hub's description of a repository, tidy or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltadex.indexer.hub.hub_model import HubModel

ROBERTA = {
    "id": "deepset/roberta-base-squad2",
    "sha": "a" * 40,
    "tags": [
        "transformers",
        "dataset:squad_v2",
        "base_model:FacebookAI/roberta-base",
        "base_model:finetune:FacebookAI/roberta-base",
        "license:cc-by-4.0",
    ],
    "cardData": {"datasets": ["squad_v2"], "base_model": "roberta-base", "license": "other"},
    "model-index": [{"name": "x", "results": [{"dataset": {"type": "squad_v2"}}]}],
    "gated": False,
    "private": False,
    "disabled": False,
    "downloads": 12,
    "likes": 3,
    "createdAt": "2022-03-02T23:29:05.000Z",
    "library_name": "transformers",
    "pipeline_tag": "question-answering",
    "config": {"model_type": "roberta"},
    "safetensors": {"parameters": {"F32": 100, "I64": 1}, "total": 101},
    "siblings": [{"rfilename": "model.safetensors"}, {"rfilename": "README.md"}],
}


def test_a_recorded_answer_gives_every_field():
    model = HubModel.from_json(ROBERTA)

    assert model.files == ("README.md", "model.safetensors")
    assert model.kind == "full"
    assert model.relation == "finetune"
    assert model.base_models == ("FacebookAI/roberta-base", "roberta-base")
    assert model.license == "cc-by-4.0"
    assert model.dtypes == {"F32": 100, "I64": 1}
    assert model.model_index == ROBERTA["model-index"]
    assert model.created_at is not None
    assert model.created_at.startswith("2022-03-02")
    assert (model.gated, model.disabled) == ("", False)


def test_an_incomplete_model_index_is_kept():
    index = [{"name": "x", "results": [{"task": {"type": "t"}, "dataset": {"type": "imdb"}}]}]

    model = HubModel.from_json({"id": "a/b", "model-index": index})

    assert model.model_index == index


@pytest.mark.parametrize(
    ("files", "relation", "kind"),
    [
        (["model.safetensors"], None, "full"),
        (["model-00001-of-00002.safetensors"], None, "full"),
        (["pytorch_model.bin"], "finetune", "full"),
        (["adapter_config.json", "adapter_model.bin"], None, "adapter"),
        (["adapter_model.safetensors", "model.safetensors"], None, "adapter"),
        (["checkpoint-5/adapter_model.safetensors", "model.safetensors"], None, "full"),
        (["model.safetensors"], "quantized", "quantized"),
        (["m.Q4.gguf"], None, "quantized"),
        (["README.md", "tf_model.h5"], None, "other"),
        (["onnx/model.onnx"], None, "other"),
        ([], None, "other"),
        (None, "adapter", "adapter"),
        (None, "quantized", "quantized"),
        (None, "merge", "full"),
        (None, None, "full"),
    ],
)
def test_the_files_at_the_top_decide_what_a_model_is(files, relation, kind):
    siblings = None if files is None else [{"rfilename": name} for name in files]
    tags = [f"base_model:{relation}:org/base"] if relation else []

    model = HubModel.from_json({"id": "a/b", "siblings": siblings, "tags": tags})

    assert model.kind == kind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.fixed_dictionaries({key: JSON for key in ROBERTA}))
def test_no_answer_is_too_odd(raw):
    model = HubModel.from_json(raw)

    assert all(isinstance(tag, str) for tag in (*model.tags, *model.base_models))
    assert model.files is None or all(isinstance(name, str) for name in model.files)
    assert isinstance(hash(model), int)
