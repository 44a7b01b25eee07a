"""config.json and adapter_config.json that strangers wrote."""

import json
import sys

import pytest
from bounds import amounts, code_of, few, json_values, result_or_refusal, within
from factories import write_file
from hypothesis import given
from hypothesis import strategies as st

from deltadex.indexer.adapter_config import read_config
from deltadex.indexer.architecture import read_attention_config
from deltadex.indexer.checkpoint import ModelFolder, quantization
from deltadex.indexer.family import Wanted, read_member, refuse_strangers

LORA = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "base_model_name_or_path": "gpt2"}
KEYS = (*LORA, "alpha_pattern", "rank_pattern", "target_modules", "init_lora_weights", "init_r",
        "use_rslora", "use_dora", "fan_in_fan_out", "target_parameters", "alpha")  # fmt: skip
CONFIG_KEYS = ("model_type", "num_attention_heads", "n_head", "quantization_config", "text_config",
               "_name_or_path", "auto_map", "num_key_value_heads")  # fmt: skip
MODULE = "base_model.model." + "a" * 40 + ".q_proj"


def use(config):
    config.alpha_of(MODULE)
    config.rank_of(MODULE)


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"a":' * 100_000, b'{"a": ' + b"9" * 100_000 + b"}", b" " * (17 << 20)],
    ids=lambda content: repr(content[:12]),
)
def test_a_vast_config_is_a_bad_config_at_once(tmp_path, content):
    path = write_file(tmp_path / "config.json", content)

    with within(seconds=10, mebibytes=128):
        assert code_of(lambda: ModelFolder.at(tmp_path).json(path.name)) == "bad-config"


@pytest.mark.parametrize(
    "key",
    ["(a+)+$", "(a|a)*b", "(a*)*", "((a{1,9}){1,9})", "a*a*a*a*b", r"(a*)\1\1", "(?=a*a*)", "(?i)q",
     "a{99999999999}", "(" * 5000, "(" * 200, "[", "x" * 100_000],
)  # fmt: skip
def test_a_pattern_that_may_take_for_ever_is_a_bad_config(key):
    with within(seconds=10):
        assert code_of(lambda: use(read_config(LORA | {"alpha_pattern": {key: 4}}))) == "bad-config"


@amounts
def test_any_adapter_config_is_read_or_refused(amount):
    @amount
    @given(changes=st.dictionaries(st.sampled_from(KEYS), json_values(), max_size=5))
    def check(changes):
        with within(seconds=10):
            result_or_refusal(lambda: use(read_config(LORA | changes)))

    check()


def check_folder(folder, name, content):
    write_file(folder / name, content)
    (folder / "base").mkdir(exist_ok=True)
    wanted = Wanted(names=("gpt2",), folder=folder / "base", config={"model_type": "gpt2"})
    with within(seconds=10):
        member = refuse_strangers(read_member(folder, id="m", base="gpt2"), wanted)
        result_or_refusal(lambda: quantization(member.config, (), ()))
        read_attention_config(member.config)
    assert member.refusal is None or member.refusal.code != "internal"


@few
@given(config=st.dictionaries(st.sampled_from(CONFIG_KEYS), json_values(), max_size=4))
def test_any_config_makes_a_member_or_a_refusal(tmp_path, config):
    check_folder(tmp_path, "config.json", json.dumps(config).encode())


def test_code_that_a_config_names_is_never_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "owned"
    for name in ("configuration_owned.py", "modeling_owned.py", "__init__.py"):
        write_file(tmp_path / "m" / name, f"open({str(mark)!r}, 'w').close()\n")
    auto = {"AutoConfig": "configuration_owned.C", "AutoModel": "modeling_owned.M"}
    config = {"model_type": "owned", "auto_map": auto, "trust_remote_code": True}

    check_folder(tmp_path / "m", "config.json", json.dumps(config).encode())

    assert not mark.exists()
    assert not any("owned" in name for name in sys.modules)
