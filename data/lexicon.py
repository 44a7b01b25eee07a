"""The lexicon of a base: its words, and the states of its layers when it reads each alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from ..arrays import Int8
from ..indexer.base import Cancelled
from ..indexer.lexicon import BaseLexicon
from ..records import Slot
from ..store import Lexicon
from ..study.network.language_head import TaskModel, load_task_model
from .gradients import layer_matrices

log = logging.getLogger(__name__)

FEWEST_WORDS, MOST_WORDS, MOST_KNOWN = 200, 4_096, 24_000
"""Words of responses, at least and at most, and all that a text may have."""

MOST_LAYERS = 6
"""Layers whose states are kept, evenly spread: measured, all of MiniLM's."""

AXES = 64
"""Numbers of a word's vector."""

NEAREST = 5
LEAST_MEANING = 1.15
"""`meaning_of` a base from which people can read what updates answer to: 1.35 of MiniLM, 1.08 of a
GPT-2 shape of 500 steps, .98 to 1.0 of random weights."""

BATCH = 256

READ = ("q", "k", "v")
"""Slots that read the state between layers; where a layer has none of them, all that read one."""


NO_LEXICON = BaseLexicon(Lexicon([], [], np.zeros((0, 1), np.int8)), {})


def build_lexicon(
    source: str,
    vocabulary: Mapping[str, int],
    device: str = "cpu",
    go_on: Callable[[], None] = lambda: None,
) -> BaseLexicon | None:
    """That of the base in a folder or at a Hub id, without states where its words are few or have
    no meaning; None, with a line in the log, where it cannot be run. `vocabulary`: whole words and
    their tokens, the most frequent first; `go_on`: raises `Cancelled` where that is to stop."""
    words, ids = list(vocabulary)[:MOST_KNOWN], list(vocabulary.values())[:MOST_KNOWN]
    if len(words) < FEWEST_WORDS:
        return NO_LEXICON
    try:
        go_on()
        model = load_task_model(source, device=device)
        go_on()
        vectors = _vectors(model, ids)
        go_on()
        if (meaning := meaning_of(vectors[:MOST_WORDS])) < LEAST_MEANING:
            log.info(
                "%s: words mean nothing to this base, which is hardly trained (%.2f of at least "
                "%.2f): no words to which its models answer are read",
                source,
                meaning,
                LEAST_MEANING,
            )
            return NO_LEXICON
        states = _states(model, ids[:MOST_WORDS], go_on)
    except Cancelled:
        raise
    # whatever a model's own code does, the base's fine-tunes are indexed without
    except Exception as err:
        log.info("%s: no words to which its models answer are read: %s", source, str(err)[:200])
        return None
    return BaseLexicon(Lexicon(words[:MOST_WORDS], words[MOST_WORDS:], vectors), states)


def _states(
    model: TaskModel, ids: Sequence[int], go_on: Callable[[], None]
) -> dict[str, torch.Tensor]:
    """By slot, the states of the words, centred and of unit length; one tensor for all slots of a
    layer that read the same."""
    modules = _reading(model)
    seen: dict[int, list[torch.Tensor]] = {layer: [] for layer in modules}
    with ExitStack() as hooks:
        for layer, (module, _) in modules.items():

            def keep(_: nn.Module, given: tuple[torch.Tensor, ...], place: int = layer) -> None:
                seen[place].append(given[0].detach()[:, WORD].float().cpu())

            hooks.enter_context(module.register_forward_pre_hook(keep))
        _read_alone(model, ids, go_on)
    states: dict[str, torch.Tensor] = {}
    for layer, (_, slots) in modules.items():
        unit = _unit(torch.cat(seen[layer])).half().float()  # as the next run reads them
        states |= {str(slot): unit for slot in slots}
    return states


def _reading(model: TaskModel) -> dict[int, tuple[nn.Module, list[Slot]]]:
    """Of the layers that are kept, the module whose input is the state before the layer, and the
    slots that read it."""
    matrices = layer_matrices(model.whole, model.config.to_dict())
    found: dict[tuple[str, int], list[tuple[nn.Module, Slot]]] = {}
    for module, placements in matrices.modules.values():
        for placement in placements:
            place = placement.slot.stack, placement.slot.layer
            found.setdefault(place, []).append((module, placement.slot))
    kept = {}
    stack = "encoder" if any(stack == "encoder" for stack, _ in found) else "decoder"
    layers = sorted(layer for one, layer in found if one == stack)
    spread = np.linspace(0, len(layers) - 1, min(MOST_LAYERS, len(layers))).round().astype(int)
    for layer in (layers[place] for place in spread):
        entries = found[stack, layer]
        reading = [entry for entry in entries if entry[1].role in READ] or entries[:1]
        kept[layer] = reading[0][0], [slot for _, slot in reading]
    return kept


WORD = 1
"""Place of the word: behind one token that begins a text."""


def _read_alone(model: TaskModel, ids: Sequence[int], go_on: Callable[[], None]) -> None:
    known = model.tokenizer
    starts = known.cls_token_id, known.bos_token_id, known.eos_token_id, known.pad_token_id
    first = next((token for token in starts if token is not None), 0)
    last = [] if known.sep_token_id is None else [known.sep_token_id]
    for start in range(0, len(ids), BATCH):
        go_on()
        rows = [[first, token, *last] for token in ids[start : start + BATCH]]
        tokens = torch.tensor(rows, device=model.device)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if getattr(model.config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = tokens[:, :1]
        with torch.no_grad():
            model.backbone(**inputs)


def _vectors(model: TaskModel, ids: Sequence[int]) -> np.ndarray:
    """The input embeddings of the words on their main axes."""
    weight = model.whole.get_input_embeddings().weight  # type: ignore[operator]
    rows = _unit(weight.detach()[torch.tensor(ids, device=weight.device)].float().cpu())
    with torch.random.fork_rng(devices=[]):  # its first directions are drawn
        torch.manual_seed(0)
        axes = torch.pca_lowrank(rows, q=min(AXES, *rows.shape), center=False, niter=2)[2]
    return (127 * normalize(rows @ axes)).round().clamp(-127, 127).to(torch.int8).numpy()


def meaning_of(vectors: Int8[np.ndarray, "words axes"]) -> float:
    """How near each word's nearest words are, beside those of random vectors of the same spectrum:
    about 1 where a base tells no words from others."""
    own = normalize(torch.from_numpy(vectors.astype(np.float32)))
    spread = torch.linalg.svdvals(own) / len(own) ** 0.5
    drawn = torch.from_numpy(np.random.default_rng(0).standard_normal(own.shape)).float()
    return float(_near_cosine(own) / _near_cosine(normalize(drawn * spread)))


def _near_cosine(rows: torch.Tensor) -> torch.Tensor:
    return (rows @ rows.T).topk(min(NEAREST + 1, len(rows)), dim=1).values[:, 1:].mean()


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return normalize(rows - rows.mean(dim=0))
