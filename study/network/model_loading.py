"""Models loaded by transformers: without head, in float32, with their adapter merged."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import pickle
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn

from ...errors import StudyError
from ...results import count
from .anatomy import Stack, find_stacks, require_supported

try:
    import transformers
except ModuleNotFoundError as err:
    raise StudyError(
        f"what runs a model needs {err.name}: pip install 'deltadex[studies]'"
    ) from err

MODEL_CLASSES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}
"""By the task type of an adapter, the class with the modules that it names."""

CLASSES_WITH_HEAD = (
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
)
"""PEFT has no task type for masked language models; whose head it is changes no hidden state."""
WRAPPED = "base_model.model."
IN_A_BLOCK = re.compile(r"\.\d+\.")


def class_of_adapter(source: str, base: str, task: str) -> Any:
    """The class of transformers whose modules have the names of the adapter's tensors."""
    if task in MODEL_CLASSES:
        return getattr(transformers, MODEL_CLASSES[task])
    config = transformers.AutoConfig.from_pretrained(base)
    headed: Any = (getattr(transformers, name) for name in CLASSES_WITH_HEAD)
    tensors = tensors_of_adapter(source)
    for kind in headed:
        if type(config) in kind._model_mapping:
            prefix = kind._model_mapping[type(config)].base_model_prefix
            if any(name.startswith(f"{WRAPPED}{prefix}.") for name in tensors):
                return kind
    return transformers.AutoModel


def tensors_of_adapter(source: str) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = _peft(source).load_peft_weights(source, device="cpu")
    return tensors


def merge_adapter(plain: nn.Module, source: str) -> nn.Module:
    """A base's model with an adapter added to its weights; one for blocks of another class of
    model is refused."""
    adapted = _peft(source).PeftModel.from_pretrained(plain, source)
    placed = adapted.load_adapter(source, adapted.active_adapter)
    # a head's may be missing: the hidden states do not depend on it
    odd = (*placed.missing_keys, *placed.unexpected_keys)
    lost = [key for key in odd if IN_A_BLOCK.search(key)]
    if lost:
        raise StudyError(
            f"{Path(source).name}: the adapter does not fit {type(plain).__name__} "
            f"({count(len(lost), 'tensor')} without their place, such as {lost[0]})"
        )
    merged: nn.Module = adapted.merge_and_unload()
    return merged


def _peft(source: str) -> Any:
    try:
        import peft
    except ModuleNotFoundError as err:
        raise StudyError(
            f"{source} is an adapter: its study needs peft, pip install 'deltadex[studies]'"
        ) from err
    return peft


HEADS = ("classifier.weight", "score.weight", "out_proj.weight")
NO_LIMIT = 1 << 40
"""Tokenizers without a limit name a larger number."""

UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    ImportError,
    AttributeError,
    SafetensorError,
    StrictDataclassError,
    pickle.UnpicklingError,
)
"""What transformers, tokenizers and PEFT raise on files they cannot use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model in evaluation mode, without head, in float32; its tokenizer, or None; and its
    residual streams: encoder, decoder or both."""

    name: str
    model: nn.Module
    tokenizer: Any
    stacks: tuple[Stack, ...]

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def n_layers(self) -> int:
        return int(getattr(self.config, "num_hidden_layers", len(self.stacks[0].blocks)))

    @property
    def window(self) -> int | None:
        return window_of(self.model, self.tokenizer)

    @property
    def dim(self) -> int:
        return int(self.config.hidden_size)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def window_of(model: Any, tokenizer: Any) -> int | None:
    """The most tokens of a text: the learnt positions, or the tokenizer's limit if smaller; None
    where neither is known."""
    longest = getattr(model.config, "max_position_embeddings", None)
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            # positions start after that of the padding, if there is one
            padding = part.padding_idx
            longest = part.num_embeddings - (0 if padding is None else padding + 1)
            break
    limits = (longest, getattr(tokenizer, "model_max_length", None))
    return min((n for n in limits if isinstance(n, int) and 0 < n < NO_LIMIT), default=None)


def load_network(
    source: str, *, name: str | None = None, base: str | None = None, device: str = "cpu"
) -> Network:
    """The model at a folder or Hub id.

    Args:
        base: Folder or Hub id of an adapter's base; by default the one that its configuration
            names. A full fine-tune without a tokenizer takes the base's.

    Raises:
        StudyError: it cannot be loaded, or its architecture is not known.
    """
    name = name or source
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise StudyError(f"{name}: cannot be loaded: {source}: no such folder")
    with refusing(name), quiet():
        adapter, base = adapter_of(source, base)
        if adapter:
            with refusing(f"{name}: its base {base} (--base FOLDER says where it is)"):
                require_supported(transformers.AutoConfig.from_pretrained(str(base)), name)
                model = _merged(source, str(base), str(adapter.get("task_type")))
        else:
            require_supported(transformers.AutoConfig.from_pretrained(source), name)
            model, missing = load_as(transformers.AutoModel, source)
            require_whole(name, missing)
        tokenizer = first_tokenizer(source, base)
    return as_network(name, model.to(device), tokenizer)


def twin(network: Network) -> Network:
    """A copy that shares nothing with the network, to be run inside its hooks."""
    model = copy.deepcopy(network.model)
    return replace(network, model=model, stacks=find_stacks(model, model.config))


def paired_matrices(
    network: Network, other: Network
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The matrices of both networks' layers that have one name and shape."""
    for stack, its in zip(network.stacks, other.stacks, strict=False):
        for block, twin in zip(stack.blocks, its.blocks, strict=False):
            named = dict(twin.named_parameters())
            for name, weight in block.named_parameters():
                beside = named.get(name)
                if weight.dim() == 2 and beside is not None and beside.shape == weight.shape:
                    yield weight, beside


def untrained_twin(network: Network, *, seed: int = 0) -> Network:
    """A network of the same shape with random weights."""
    with refusing(network.name), quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(network.config)  # type: ignore[no-untyped-call]
    model = model.float().to(network.device)
    return as_network(f"{network.name}, untrained", model, network.tokenizer)


def as_network(name: str, model: nn.Module, tokenizer: Any) -> Network:
    """A loaded model, ready to run; a `StudyError` where its architecture is not known."""
    model = model.eval().requires_grad_(False)
    stacks = find_stacks(model, model.config)
    return Network(name=name, model=model, tokenizer=tokenizer, stacks=stacks)


def adapter_of(source: str, base: str | None) -> tuple[dict[str, Any], str | None]:
    """An adapter's configuration, empty where the source is none, and its base."""
    path = file_of(source, "adapter_config.json")
    adapter = json.loads(path.read_text("utf-8")) if path else {}
    if adapter:
        base = base or str(adapter.get("base_model_name_or_path") or "")
    return adapter, base


def load_as(
    kind: Any, source: str | None, dtype: torch.dtype = torch.float32
) -> tuple[Any, list[str]]:
    """A model of a class of transformers, and the names of weights that its files lack."""
    model, info = kind.from_pretrained(source, dtype=dtype, output_loading_info=True)
    return model, sorted(info["missing_keys"])


def require_whole(name: str, missing: list[str]) -> None:
    """Refuse a model without some weights of its layers."""
    lost = [key for key in missing if "pooler" not in key]
    if lost:
        raise StudyError(f"{name}: no weights for {lost[0]} ({count(len(lost), 'tensor')} missing)")


def _merged(source: str, base: str, task: str) -> nn.Module:
    kind = class_of_adapter(source, base, task)
    sized = _labels(source)
    merged = merge_adapter(kind.from_pretrained(base, dtype=torch.float32, **sized), source)
    headless: nn.Module = getattr(merged, "base_model", merged)
    return headless


def _labels(source: str) -> dict[str, int]:
    """The option that gives a model as many labels as a head that an adapter saved."""
    path = file_of(source, "adapter_model.safetensors")
    if path is None:
        return {}
    with safe_open(path, framework="pt") as file:
        heads = [name for name in file.keys() if name.endswith(HEADS)]  # noqa: SIM118
        shapes = [file.get_slice(name).get_shape() for name in heads]
    return {"num_labels": int(shapes[-1][0])} if shapes else {}


def file_of(source: str, name: str) -> Path | None:
    """A file of a folder or of a Hub repository; None where it is missing."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.exists() else None
    cached = transformers.utils.hub.cached_file(
        source, name, _raise_exceptions_for_missing_entries=False
    )
    return None if cached is None else Path(str(cached))


def first_tokenizer(*sources: str | None) -> Any:
    """The first tokenizer of these sources; None if there is none.

    Where files are missing, transformers makes a tokenizer without words: special tokens only,
    for T5 the mark of a space too.
    """
    for source in filter(None, sources):
        with contextlib.suppress(*UNREADABLE):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source)
            ordinary = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
            if any(character.isalnum() for token in ordinary for character in str(token)):
                return tokenizer
    return None


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """What libraries raise on files that they cannot use becomes a `StudyError` in one line."""
    try:
        yield
    except UNREADABLE as err:
        lines = str(err).strip().splitlines() or [type(err).__name__]
        line = lines[-1 if isinstance(err, StrictDataclassError) else 0].strip()
        raise StudyError(f"{name}: cannot be loaded: {line}") from err


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("transformers", "peft", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = transformers.utils.logging.is_progress_bar_enabled()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            transformers.utils.logging.enable_progress_bar()  # type: ignore[no-untyped-call]
