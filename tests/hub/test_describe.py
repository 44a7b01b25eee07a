"""One repository described: by the Hub, by the local cache, or refused with a code."""

import pytest
from factories import put_in_cache, write_file
from hub_standin import Fault
from hypothesis import given
from hypothesis import strategies as st

from deltadex.errors import ModelError
from deltadex.indexer.hub import HubModel, describe, early_refusal
from deltadex.indexer.hub.session import HubSession

BAD_TOKEN = {"X-Error-Message": "Invalid credentials in Authorization header"}


def test_an_id_of_one_segment_is_an_id_and_a_renamed_repository_is_described_under_its_new_name(
    hub, session
):
    hub.add("gpt2", {"model.safetensors": b""})
    hub.add("org/new")
    hub.renamed["old"] = "org/new"

    assert describe("gpt2", session=session).id == "gpt2"
    assert describe("old", session=session).id == "org/new"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"status": 401, "headers": BAD_TOKEN}, "unauthorized"),
        ({"status": 403, "headers": {"X-Error-Code": "GatedRepo"}}, "gated"),
        ({"status": 404}, "private-or-missing"),
        ({"status": 451}, "disabled"),
        ({"status": 504}, "hub-unreachable"),
        ({"status": 429, "headers": {"RateLimit": '"api";r=0;t=300'}}, "rate-limited"),
        ({"kind": "body", "body": b"[]"}, "hub-bad-answer"),
    ],
    ids=str,
)
def test_every_refusal_has_its_code_and_no_secrets(hub, session, fault, code):
    hub.add("org/model", {"model.safetensors": b""})
    hub.faults.append(Fault(path="/api/models", where="hub", nth=0, **{"kind": "status", **fault}))

    with pytest.raises(ModelError) as caught:
        describe("org/model", session=session)

    assert caught.value.code == code
    assert caught.value.reason.startswith("org/model: ")
    assert "\n" not in caught.value.reason
    assert "SECRET" not in caught.value.reason


def test_missing_private_and_disabled_repositories_are_told_apart_where_the_hub_does(hub, session):
    hub.add("org/gone", disabled=True)
    hub.add("org/mine", private=True)
    anonymous = HubSession(endpoint=hub.endpoint, token=False, patience=session.patience)

    for id, options, said in (
        ("org/gone", {"session": session}, "disabled: "),
        ("org/mine", {"session": anonymous}, "private-or-missing: "),
        ("org/never", {"session": session}, "private-or-missing: "),
        ("org/mine", {"session": session, "revision": "v9"}, "not-found: .*revision"),
    ):
        with pytest.raises(ModelError, match=f"^{said}"):
            describe(id, **options)
    assert describe("org/mine", session=session).id == "org/mine"


@pytest.mark.parametrize("id", ["", "../etc/passwd", "https://x.y/z"])
def test_what_is_no_id_is_not_requested(hub, session, id):
    with pytest.raises(ModelError, match=r"^not-found: "):
        describe(id, session=session)
    assert hub.log == []


def test_an_odd_description_is_read_without_huggingface_hub_and_an_unreachable_hub_given_up(
    hub, session
):
    hub.add("org/odd", {"model.safetensors": b""}, createdAt="yesterday")

    assert describe("org/odd", session=session).files == ("model.safetensors",)
    session.endpoint = "http://127.0.0.1:9"
    with pytest.raises(ModelError, match=r"^hub-unreachable: org/model: no connection"):
        describe("org/model", session=session)


def test_offline_the_cache_describes_a_model(session, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    put_in_cache(tmp_path, "org/model", "c" * 40, "model.safetensors", b"")
    put_in_cache(tmp_path, "org/model", "c" * 40, "config.json", b'{"model_type": "bert"}')
    write_file(tmp_path / "models--org--model" / "refs" / "main", "c" * 40)

    model = describe("org/model", session=session)

    assert (model.sha, model.files) == ("c" * 40, ("config.json", "model.safetensors"))
    assert model.config == {"model_type": "bert"}
    with pytest.raises(ModelError, match=r"^offline: "):
        describe("org/other", session=session)


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
    "model-index": [{"name": "x", "results": [{"dataset": {"type": "squad_v2"}}]}],  # incomplete
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


@pytest.mark.parametrize(
    ("files", "relation", "kind"),
    [
        (["adapter_model.safetensors", "model.safetensors"], None, "adapter"),
        (["checkpoint-5/adapter_model.safetensors", "model.safetensors"], None, "full"),
        (["adapter_model.safetensors", "config.json", "model.safetensors"], None, "full"),
        (["README.md"], "quantized", "quantized"),
        (["pytorch_lora_weights.safetensors"], None, "adapter"),
        ([], None, "other"),
        (None, "adapter", "adapter"),
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


def model(*files, **fields):
    siblings = [{"rfilename": name} for name in files or ("model.safetensors",)]
    return HubModel.from_json({"id": "a/b", "sha": "f" * 40, "siblings": siblings, **fields})


def dtypes(**parameters):
    return {"safetensors": {"parameters": parameters}}


REFUSED = [
    (model(disabled=True), "disabled"),
    (model("m.Q4_K_M.gguf"), "quantized"),
    (model(tags=["base_model:quantized:org/base"], **dtypes(U8=9, F16=1)), "quantized"),
    (model("README.md", tags=["gptq"]), "quantized"),
    (model(tags=["4-bit", "bitsandbytes"], **dtypes(U8=700, F16=300)), "quantized"),
    (model(**dtypes(F8_E5M2=900, BF16=100)), "quantized"),
    (model("adapter_config.json"), "no-weights"),
    (model("checkpoint-5/model.safetensors"), "no-weights"),
    (model("pytorch_lora_weights.safetensors"), "unsupported-adapter"),
    (model("lora_rank4.safetensors", "lora_rank16.safetensors"), "unsupported-adapter"),
]
WORTH_A_TRY = [
    model(),
    model("model.safetensors", "m.Q4.gguf", tags=["base_model:quantized:org/base", "4-bit"]),
    model("model.safetensors", "lora_rank4.safetensors"),
    model(tags=["8-bit"], **dtypes(F32=100)),
    model(**dtypes(F8_E4M3=900, BF16=100)),
    model(tags=["base_model:quantized:org/base"], **dtypes(I8=900, F16=100)),
    model(**dtypes(F32=124_000_000, U8=12_582_912)),
    model("adapter_config.json", "adapter_model.bin", tags=["4-bit"]),
    model("pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"),
    HubModel(id="a/b", files=None),
]


def test_a_hopeless_model_is_refused_without_a_request_and_a_promising_one_is_not(hub, session):
    for refused, code in REFUSED:
        error = early_refusal(refused, session=session)
        assert error is not None, refused
        assert (error.code, error.reason[:5]) == (code, "a/b: "), refused
    assert [early_refusal(good, session=session) for good in WORTH_A_TRY] == [None] * len(
        WORTH_A_TRY
    )
    assert hub.log == []
