"""The tensors of a model beside its layer matrices: those that differ from the base's, and the
modules of PEFT that hold them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...indexer import Checkpoint, Config, OpenUpdate, are_equal, tied_parameters

_BUFFER = re.compile(r"(^|\.)(masked_bias|inv_freq|position_ids|token_type_ids|attn\.bias)$")
"""What checkpoints of earlier versions hold beside their parameters."""

_RENAMED: tuple[tuple[str, str, str], ...] = (
    ("", r"LayerNorm\.gamma$", "LayerNorm.weight"),
    ("", r"LayerNorm\.beta$", "LayerNorm.bias"),
    ("^Mixtral", r"\.block_sparse_moe\.", ".mlp."),
    ("^ViT", r"(^|\.)encoder\.layer\.", r"\1layers."),
    ("^ViT", r"attention\.attention\.query\.", "attention.q_proj."),
    ("^ViT", r"attention\.attention\.key\.", "attention.k_proj."),
    ("^ViT", r"attention\.attention\.value\.", "attention.v_proj."),
    ("^ViT", r"attention\.output\.dense\.", "attention.o_proj."),
    ("^ViT", r"intermediate\.dense\.", "mlp.fc1."),
    ("^ViT", r"(?<!mlp\.)output\.dense\.", "mlp.fc2."),
)
"""By architecture: a parameter's name on disk, and in the memory of transformers 5, where they
differ."""

_NO_TARGET = re.compile(r"^(falcon_h1|nemotron_h|(falcon_)?mamba2?) .*\.(out_proj|conv1d)\.weight$")
"""Model type and parameter of what PEFT refuses to add a LoRA to, and saves whole."""

_EMBEDDINGS = r"(embed_tokens|wte|embed_in|shared|(word_|tok_|backbone\.)embeddings)\.weight$"

_TIED: tuple[tuple[str, str, str], ...] = (
    (r"^(?!Whisper).*(CausalLM|LMHeadModel|Generation)$", "lm_head.weight", _EMBEDDINGS),
    (r"^Whisper", "proj_out.weight", _EMBEDDINGS),
    (r"^GPTNeoXFor", "lm_head.weight", r"^embed_out\.weight$"),
    (r"^(T5|MT5|UMT5)For", "encoder.embed_tokens.weight", r"^shared\.weight$"),
    (r"^(T5|MT5|UMT5)For", "decoder.embed_tokens.weight", r"^shared\.weight$"),
    (r"^M?Bart|^Pegasus|^Marian", "model.encoder.embed_tokens.weight", r"model\.shared\.weight$"),
    (r"^M?Bart|^Pegasus|^Marian", "model.decoder.embed_tokens.weight", r"model\.shared\.weight$"),
    (r"^Bert.*(MaskedLM|PreTraining|LMHead)", "cls.predictions.decoder.weight", _EMBEDDINGS),
    (r"^Bert.*(MaskedLM|PreTraining|LMHead)", "cls.predictions.decoder.bias", r"predictions\.bias"),
    (r"Roberta.*MaskedLM$", "lm_head.decoder.weight", _EMBEDDINGS),
    (r"Roberta.*MaskedLM$", "lm_head.decoder.bias", r"lm_head\.bias$"),
    (r"^DistilBert.*MaskedLM$", "vocab_projector.weight", _EMBEDDINGS),
    (r"^Albert.*MaskedLM$", "predictions.decoder.weight", _EMBEDDINGS),
    (r"^Albert.*MaskedLM$", "predictions.decoder.bias", r"predictions\.bias$"),
    (r"^Electra.*MaskedLM$", "generator_lm_head.weight", _EMBEDDINGS),
)
"""By architecture: a parameter that is tied to another, which alone is stored; `lm_head` of
GPT-NeoX is `embed_out` on disk and up to transformers 4."""


def architecture(config: Mapping[str, object] | None) -> str:
    names = (config or {}).get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def parameters(
    checkpoint: Checkpoint,
    config: Mapping[str, object] | None,
    ties: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The stored tensor of every parameter by its name in memory, tied ones as well; `ties`: to
    which embeddings, where that is known better than by the architecture."""
    stored = {
        name_in_memory(name, config): name
        for name, ref in checkpoint.tensors.items()
        if not _BUFFER.search(name) or (name.endswith("attn.bias") and len(ref.shape) == 1)
    }
    is_untied = ties is not None or (config or {}).get("tie_word_embeddings") is False
    pairs = [(tied, source) for pair in (ties or {}).items() for tied, source in (pair, pair[::-1])]
    known = (("", tied, rf"^{re.escape(source)}$") for tied, source in pairs)
    for pattern, tied, source in (*known, *_TIED):
        if is_untied and source is _EMBEDDINGS:
            continue
        if tied not in stored and re.search(pattern, architecture(config)):
            owner = next((name for name in stored if re.search(source, name)), None)
            if owner is not None:
                stored[tied] = stored[owner]
    return stored


def name_in_memory(name: str, config: Mapping[str, object] | None) -> str:
    """A tensor's name as PEFT meets it."""
    for pattern, former, now in _RENAMED:
        if re.search(pattern, architecture(config)):
            name = re.sub(former, now, name)
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherTensors:
    """The parameters of a model that are no layer matrix.

    Attributes:
        stored: The stored tensor of each parameter of the model, by its name in memory.
        in_base: The base's stored tensor, of those that it has.
        changed: Those that the base lacks, or has with another shape or other values.
    """

    stored: Mapping[str, str]
    in_base: Mapping[str, str]
    changed: frozenset[str]


def compare_others(update: OpenUpdate) -> OtherTensors:
    """Every other parameter beside the base's. Peak: a block of each. `ModelError` for a changed
    tensor that holds NaN or infinity."""
    model, base = update.checkpoint, update.weights
    stored, theirs = (
        parameters(checkpoint, config, tied_parameters(config))
        for checkpoint, config in ((model, update.member.config), (base.checkpoint, base.config))
    )
    base_layers, placed = base.placed.by_key, update.placed.placements
    pairs = [(placement.tensor, base_layers[placement.key].tensor) for placement in placed]
    ours_to_theirs = counterparts(stored, theirs, pairs, (update.member.config, base.config))
    layers = {name_in_memory(p.tensor, update.member.config) for p in update.placed.placements}
    layers = {name for name in layers if not _NO_TARGET.search(f"{base.architecture} {name}")}
    in_base, changed = {}, set()
    for name, tensor in stored.items():
        ref = model.tensors[tensor]
        if name in layers or ref.dtype not in ("F64", "F32", "F16", "BF16"):
            continue
        other = ours_to_theirs[name]
        if other is not None:
            in_base[name] = other
        has_shape = other is not None and base.checkpoint.tensors[other].shape == ref.shape
        if not has_shape or not are_equal(model, tensor, base.checkpoint, in_base[name]):
            changed.add(name)
    return OtherTensors(stored=stored, in_base=in_base, changed=frozenset(changed))


def counterparts(
    ours: Mapping[str, str],
    theirs: Mapping[str, str],
    layers: Iterable[tuple[str, str]],
    configs: tuple[Config | None, Config | None],
) -> dict[str, str | None]:
    """The other model's tensor of each parameter, None where it has none. Names may begin
    otherwise there, as those of layer matrices do: `layers`, pairs of tensors that belong
    together."""
    starts = set()
    for pair in layers:
        own, other = (name_in_memory(*part).split(".") for part in zip(pair, configs, strict=True))
        while own and other and own[-1] == other[-1]:
            del own[-1], other[-1]
        starts.add(("".join(f"{part}." for part in own), "".join(f"{part}." for part in other)))
    # the longest first; else the same name
    order = [*sorted(starts, key=lambda pair: (-len(pair[0]), pair)), ("", "")]
    found: dict[str, str | None] = {}
    for name in ours:
        there = (other + name[len(own) :] for own, other in order if name.startswith(own))
        found[name] = next((theirs[n] for n in there if n in theirs), None)
    return found


def saved_modules(
    changed: Collection[str], names: Collection[str], always: Collection[str]
) -> list[str]:
    """The outermost modules that PEFT saves whole, so that every changed parameter is in one.

    PEFT takes a name in `modules_to_save` for all modules whose path *ends* in it, and wants all
    parameters of these. `always`: names that PEFT adds itself, for a task.
    """
    paths = {
        ".".join(parts[:n])
        for parts in (name.split(".") for name in names)
        for n in range(1, len(parts))
    }
    wanted = {name.rpartition(".")[0] for name in changed}
    taken = {path for path in paths if path.endswith(tuple({*wanted, *always}))}
    while more := {path for path in paths if path.endswith(tuple(taken))} - taken:
        taken |= more
    return sorted(
        path for path in taken if not any(path.startswith(f"{other}.") for other in taken)
    )
