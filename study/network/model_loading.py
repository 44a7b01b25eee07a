"""A model to run: loaded by transformers without its head, float32, its adapter merged."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import logging
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers.utils import hub

from ...errors import StudyError
from .anatomy import Stack, find_stacks

ADAPTER_CONFIG = "adapter_config.json"
HEADS = ("classifier", "score", "out_proj")
"""Names of the matrices that give labels."""

UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    ImportError,
    AttributeError,
    SafetensorError,
    pickle.UnpicklingError,
)
"""What transformers, tokenizers and PEFT raise on files they cannot use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A model in evaluation mode.

    Attributes:
        name: As the user calls it.
        model: Headless, float32.
        tokenizer: Of transformers; None where there is none.
        stacks: Its residual streams: encoder, decoder or both.
    """

    name: str
    model: nn.Module
    tokenizer: Any
    stacks: tuple[Stack, ...]

    @property
    def config(self) -> Any:
        """Of transformers."""
        return self.model.config

    @property
    def n_layers(self) -> int:
        """Of its first stream."""
        config = self.config
        return int(getattr(config, "num_hidden_layers", len(self.stacks[0].blocks)))

    @property
    def longest_text(self) -> int | None:
        """Tokens that its learnt positions reach; None where they are not learnt."""
        for name, part in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
                # positions start behind that of the padding, where it has one
                padding = part.padding_idx
                return part.num_embeddings - (0 if padding is None else padding + 1)
        longest = getattr(self.config, "max_position_embeddings", None)
        return longest if isinstance(longest, int) and longest > 0 else None

    @property
    def dim(self) -> int:
        """Width of the stream."""
        return int(self.config.hidden_size)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.model.parameters()).device

    def digest(self) -> str:
        """Of its weights, as they are in memory."""
        sums = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            sums.update(name.encode())
            sums.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return sums.hexdigest()[:16]


def load_network(
    source: str, *, name: str | None = None, base: str | None = None, device: str = "cpu"
) -> Network:
    """The model at a folder or Hub id.

    Args:
        base: Where an adapter's base is; else its own config says so. A full model that has
            no tokenizer takes the base's.

    Raises:
        StudyError: it cannot be loaded, or its architecture is not known.
    """
    name = name or source
    if Path(source).is_absolute() and not Path(source).is_dir():
        raise StudyError(f"{name}: cannot be loaded: {source}: no such folder")
    with _refusing(name), _quiet():
        adapter = _adapter_base(source)
        if adapter is not None:
            where = base or adapter
            with _refusing(f"{name}: its base {where} (--base FOLDER says where it is)"):
                model = _merged(source, where)
            tokenizer = _tokenizer(source, where)
        else:
            model = _load(source, name)
            tokenizer = _tokenizer(source, base)
    model = model.to(device).eval().requires_grad_(False)
    return Network(
        name=name, model=model, tokenizer=tokenizer, stacks=find_stacks(model, model.config)
    )


def twin(network: Network) -> Network:
    """A copy that shares nothing with it, to be called from within its own hooks."""
    model = copy.deepcopy(network.model)
    return replace(network, model=model, stacks=find_stacks(model, model.config))


def untrained_twin(network: Network, *, seed: int = 0) -> Network:
    """A network of the same shape whose weights were never trained."""
    with _refusing(network.name), _quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(network.config)  # type: ignore[no-untyped-call]
    model = model.float().to(network.device).eval().requires_grad_(False)
    return Network(
        name=f"{network.name}, untrained",
        model=model,
        tokenizer=network.tokenizer,
        stacks=find_stacks(model, model.config),
    )


def _load(source: str, name: str) -> nn.Module:
    model, info = transformers.AutoModel.from_pretrained(
        source, dtype=torch.float32, output_loading_info=True
    )
    missing = [key for key in info["missing_keys"] if "pooler" not in key]
    if missing:
        raise StudyError(f"{name}: no weights for {missing[0]} ({len(missing)} tensors missing)")
    headless: nn.Module = model
    return headless


def _merged(source: str, base: str) -> nn.Module:
    try:
        import peft
    except ModuleNotFoundError as err:
        raise StudyError(
            f"{source} is an adapter: its study needs peft, pip install 'deltadex[studies]'"
        ) from err
    kind = getattr(transformers, _head(source))
    labels = _n_labels(source)
    sized = {} if labels is None else {"num_labels": labels}
    plain = kind.from_pretrained(base, dtype=torch.float32, **sized)
    merged = peft.PeftModel.from_pretrained(plain, source).merge_and_unload()
    headless: nn.Module = getattr(merged, "base_model", merged)
    return headless


def _head(source: str) -> str:
    """The class with the modules that an adapter of this task type names."""
    task = str(_adapter_config(source).get("task_type"))
    return {
        "CAUSAL_LM": "AutoModelForCausalLM",
        "SEQ_CLS": "AutoModelForSequenceClassification",
        "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
        "TOKEN_CLS": "AutoModelForTokenClassification",
        "QUESTION_ANS": "AutoModelForQuestionAnswering",
    }.get(task, "AutoModel")


def _n_labels(source: str) -> int | None:
    """How many labels the head has that an adapter saved with it; None without one."""
    path = _file_of(source, "adapter_model.safetensors")
    if path is None:
        return None
    with safe_open(path, framework="pt") as file:
        heads = [
            name
            for name in file.keys()  # noqa: SIM118
            if any(name.endswith(f"{head}.weight") for head in HEADS)
        ]
        shapes = [file.get_slice(name).get_shape() for name in heads]
    return int(shapes[-1][0]) if shapes else None


def _adapter_base(source: str) -> str | None:
    """The base that an adapter's config names; None for a full model."""
    folder = Path(source)
    if folder.is_dir() and not (folder / ADAPTER_CONFIG).exists():
        return None
    config = _adapter_config(source)
    return str(config.get("base_model_name_or_path") or "") if config else None


def _adapter_config(source: str) -> dict[str, Any]:
    path = _file_of(source, ADAPTER_CONFIG)
    config: dict[str, Any] = json.loads(path.read_text("utf-8")) if path else {}
    return config


def _file_of(source: str, name: str) -> Path | None:
    """A file of a folder or of a Hub repository; None where it is missing."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.exists() else None
    found = hub.cached_file(source, name, _raise_exceptions_for_missing_entries=False)
    return None if found is None else Path(str(found))


def _tokenizer(*sources: str | None) -> Any:
    """The first tokenizer there is. Where its files are missing, transformers makes one that
    knows nothing but special tokens."""
    for source in sources:
        if source:
            with contextlib.suppress(*UNREADABLE):
                made = transformers.AutoTokenizer.from_pretrained(source)
                if len(made) > len(made.all_special_tokens):
                    return made
    return None


@contextlib.contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as err:
        line = str(err).strip().splitlines()[0] if str(err).strip() else type(err).__name__
        raise StudyError(f"{name}: cannot be loaded: {line}") from err


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' and PEFT's own progress bars and remarks."""
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
