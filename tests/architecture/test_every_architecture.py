"""Every model type that transformers builds, with two layers and without memory for its weights:
each matrix of its numbered blocks has a slot, and a LoRA of its linear layers has the same ones,
by the names that it has in memory and by those that transformers stores."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from warnings import catch_warnings

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.core_model_loading import revert_weight_conversion

from deltadex.errors import ModelError
from deltadex.indexer import architecture

DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
DEPTHS += ("decoder_layers", "depth", "num_encoder_layers", "num_decoder_layers")
BUILDERS = ("AutoModel", "AutoModelForCausalLM", "AutoModelForImageTextToText")

pytestmark = pytest.mark.slow


def shortened(config):
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            shortened(value)
        elif name in DEPTHS and type(value) is int:
            setattr(config, name, min(value, 2))
        elif name == "layer_types" and isinstance(value, list):
            setattr(config, name, (list(dict.fromkeys(value)) + value)[:2])
    return config


def built(model_type):
    """Without weights; with two layers where transformers builds that config again, as it does of
    every config that it saves; None for a type that its default settings do not build."""
    for shorten in (shortened, lambda config: config):
        for builder in BUILDERS:
            with suppress(Exception), torch.device("meta"), catch_warnings(action="ignore"):
                config = shorten(CONFIG_MAPPING[model_type]())
                config = type(config).from_dict(config.to_dict())
                model = getattr(transformers, builder).from_config(config)
                model.config.architectures = [type(model).__name__]
                return model
    return None


def outcome(model, tensors):
    """ "indexed", a code, or what is wrong with its slots."""
    config = model.config.to_dict()
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    linear = {  # (out, in) of what a LoRA of all linear layers changes
        name: tuple(module.weight.shape)[:: 1 if isinstance(module, torch.nn.Linear) else -1]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
    }
    try:
        placed = architecture.place(shapes, config)
        adapter = architecture.place_modules(linear, config)
        adapter.require_known()
        architecture.require_within_base(architecture.in_slots_of(adapter, placed, config), placed)
    except ModelError as err:
        in_blocks = [n for n in linear if any(part.isdecimal() for part in n.split(".")[1:-1])]
        return "without matrices" if err.code == "no-attention" and not in_blocks else str(err)
    counted = Counter()
    for p in placed.placements:
        counted[p.tensor, p.index] += p.shape[0] * p.shape[1]
    wrong = [
        name
        for (name, index), n in counted.items()
        if n != torch.Size(shapes[name]).numel() // (1 if index is None else shapes[name][0])
    ]
    known = set(placed.ignored) | {name for name, _ in counted}
    lost = [
        name
        for name, shape in shapes.items()
        if architecture.is_matrix(shape) and name not in known
    ]
    return f"wrong: {wrong[:3]} {lost[:3]}" if wrong or lost else "indexed"


def test_nearly_every_type_of_transformers_is_indexed_and_the_rest_refused():
    in_memory, stored = {}, {}
    for model_type in sorted(CONFIG_MAPPING.keys()):
        model = built(model_type)
        if model is not None:
            tensors = model.state_dict()
            in_memory[model_type] = outcome(model, tensors)
            with torch.device("meta"):
                saved = revert_weight_conversion(model, tensors)
            stored[model_type] = outcome(model, saved)

    assert len(stored) > 300
    for outcomes in (in_memory, stored):
        odd = {k: v for k, v in outcomes.items() if v not in ("indexed", "without matrices")}
        assert not [line for line in odd.values() if line.startswith("wrong")]
        assert len(odd) <= 0.01 * len(outcomes), odd
