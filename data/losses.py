"""Losses that fine-tunes of a base would minimise on examples, and which of them a base allows."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..arrays import Float, Float32, Int64
from ..errors import RequestError
from ..records import LossName
from ..results import count
from ..study.network.anatomy import decoder_start
from ..study.network.language_head import TaskModel
from .columns import as_number
from .examples import Example

NOTHING = "there is nothing to predict; name another column as label, or draw more examples"
IGNORED = -100
MASKED_SHARE = 0.15
"""Of the tokens, as in BERT's training (Devlin et al. 2019); every one of them is masked here."""

TEMPERATURE = 0.05
"""Of the cosines, as in SimCSE (Gao, Yao, Chen 2021)."""

PENALTY = 0.01
"""Of a head's squared weights: without it few examples are fitted without error."""

ROUNDS = 200

PER_BATCH = 32
"""What a batch costs on a processor beyond its tokens, in tokens of MiniLM; 16 to 64 are alike."""

States = dict[tuple[int, ...], torch.Tensor]
"""What a head reads of texts, by their tokens: (dim,) float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedExample:
    """One example as token ids: what the model reads, the text of a pair that each token is of
    (empty where models do not ask), what is predicted, and the place of its class or a regression's
    number."""

    ids: Sequence[int]
    types: Sequence[int] = ()
    targets: Sequence[int] = ()
    value: float = 0.0

    @property
    def read(self) -> tuple[int, ...]:
        """All that the model reads, so that equal ones give equal states."""
        return *self.ids, -1, *self.types


@dataclass(slots=True)
class Loss(ABC):
    """A loss over examples of a model, by the name that users call it."""

    model: TaskModel
    max_tokens: int
    name: LossName
    needs_dropout: bool = False

    def encode(self, examples: Sequence[Example]) -> list[EncodedExample]:
        """The examples as token ids; without those that have nothing to predict."""
        return list(filter(None, map(self._encode, examples)))

    @abstractmethod
    def _encode(self, example: Example) -> EncodedExample | None:
        """One of them; None where it has nothing to predict."""

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int, known: States) -> None:
        """Fit what the loss needs and the checkpoint lacks, on the frozen base; states that are not
        `known` are added to these."""
        return

    def batches(
        self, encoded: Sequence[EncodedExample], most: int
    ) -> Iterator[Sequence[EncodedExample]]:
        """The examples by length, in batches of at most so many: on a processor those of the fewest
        tokens with padding, each batch counting as `PER_BATCH` more."""
        ordered = sorted(encoded, key=lambda example: len(example.ids))
        if self.model.device.type != "cpu" or self.needs_dropout:
            yield from (ordered[first : first + most] for first in range(0, len(ordered), most))
            return
        # the least cost of the first examples, and where the last of their batches begins
        best = [(0, 0)]
        for end, example in enumerate(ordered, start=1):
            width = len(example.ids)
            best.append(
                min(
                    (best[first][0] + PER_BATCH + (end - first) * width, first)
                    for first in range(max(0, end - most), end)
                )
            )
        end = len(ordered)
        while end:
            first = best[end][1]
            yield ordered[first:end]
            end = first

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        """The sum of the loss over all that is predicted in a batch, and how many these are; by
        default over targets at the tokens that read them."""
        return summed_cross_entropy(
            self.model.whole(**self._inputs(batch)).logits, self._targets(batch)
        )

    @property
    def _limit(self) -> int:
        return min(self.max_tokens, self.model.window or self.max_tokens)

    def _tokens(self, text: str, pair: str = "") -> tuple[list[int], list[int], list[int]]:
        """(ids, types, 1 for special tokens) of a text, or pair of texts."""
        encoding = self.model.tokenizer(
            text,
            pair or None,
            truncation=True,
            max_length=self._limit,
            return_special_tokens_mask=True,
        )
        types = encoding.get("token_type_ids") or [] if pair else []
        return list(encoding["input_ids"]), list(types), list(encoding["special_tokens_mask"])

    def _inputs(self, batch: Sequence[EncodedExample]) -> dict[str, Any]:
        device = self.model.device
        rows = [example.ids for example in batch]
        # padded tokens are masked, so that any id will do where none is set
        owners = (self.model.tokenizer, self.model.config)
        padding = [getattr(owner, "pad_token_id", None) for owner in owners]
        usable = (id for id in padding if isinstance(id, int) and id >= 0)
        inputs: dict[str, Any] = {
            "input_ids": padded(rows, next(usable, 0), device),
            "attention_mask": padded([[1] * len(row) for row in rows], 0, device),
        }
        if any(example.types for example in batch):
            inputs["token_type_ids"] = padded([example.types for example in batch], 0, device)
        if hasattr(self.model.config, "use_cache"):
            inputs["use_cache"] = False
        return inputs

    def _targets(self, batch: Sequence[EncodedExample]) -> Int64[torch.Tensor, "texts tokens"]:
        return padded([example.targets for example in batch], IGNORED, self.model.device)

    def _pooled_states(self, batch: Sequence[EncodedExample]) -> Float[torch.Tensor, "texts dim"]:
        """What a head reads: the pooler's output where the checkpoint has one, else the first
        token's state; the last token's of a model that reads one way; of an encoder-decoder the
        encoder's mean."""
        model, inputs = self.model, self._inputs(batch)
        mask = inputs["attention_mask"]
        if getattr(model.config, "is_encoder_decoder", False):
            inputs.pop("use_cache", None)
            states = model.backbone.get_encoder()(**inputs).last_hidden_state  # type: ignore[operator]
            weights = mask[:, :, None].to(states.dtype)
            mean: torch.Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1)
            return mean
        output = model.backbone(**inputs)
        if model.has_pooler:
            pooled: torch.Tensor = output.pooler_output
            return pooled
        states = output.last_hidden_state
        reads_one_way = "next" in (model.head, model.missing_head)
        place = mask.sum(dim=1) - 1 if reads_one_way else torch.zeros_like(mask[:, 0])
        chosen: torch.Tensor = states[torch.arange(len(states), device=states.device), place]
        return chosen


@dataclass(slots=True)
class CausalLoss(Loss):
    """Cross-entropy of every next token; only of the completion where an example has one."""

    name: LossName = "causal"

    def _encode(self, example: Example) -> EncodedExample | None:
        """With a prompt cut from the left where prompt and completion are too long."""
        text = f"{example.text}\n{example.pair}" if example.pair else example.text
        if not example.completion:
            ids, _, _ = self._tokens(text)
            return EncodedExample(ids=ids, targets=[*ids[1:], IGNORED]) if len(ids) > 1 else None
        tokenizer, limit = self.model.tokenizer, self._limit
        # not verbose: what is too long is cut below
        answer = tokenizer(example.completion, add_special_tokens=False, verbose=False)
        completion = list(answer["input_ids"])
        end = getattr(tokenizer, "eos_token_id", None)
        completion = (completion + ([] if end is None else [end]))[: limit - 1]
        prompt = list(tokenizer(text, verbose=False)["input_ids"])
        if end is not None and prompt[-1:] == [end]:
            prompt = prompt[:-1]
        prompt = prompt[max(0, len(prompt) + len(completion) - limit) :]
        if not completion or len(prompt + completion) < 2:
            return None
        targets = [*[IGNORED] * len(prompt), *completion, IGNORED][1:]
        return EncodedExample(ids=prompt + completion, targets=targets)


@dataclass(slots=True)
class MaskedLoss(Loss):
    """Cross-entropy of masked tokens, chosen by the text itself and a seed, for encoders with that
    head."""

    name: LossName = "masked"
    seed: int = 0

    def _encode(self, example: Example) -> EncodedExample | None:
        ids, types, special = self._tokens(example.text, example.pair)
        ordinary = np.flatnonzero(np.array(special) == 0)
        if not len(ordinary):
            return None
        n_masked = max(1, round(MASKED_SHARE * len(ordinary)))
        text = f"{self.seed}/{example.text}/{example.pair}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        masked = set(rng.choice(ordinary, n_masked, replace=False).tolist())
        mask = self.model.tokenizer.mask_token_id
        return EncodedExample(
            ids=[mask if place in masked else id for place, id in enumerate(ids)],
            types=types,
            targets=[id if place in masked else IGNORED for place, id in enumerate(ids)],
        )


@dataclass(slots=True)
class SequenceToSequenceLoss(Loss):
    """Cross-entropy of a completion's tokens; of a class's name where there is none."""

    name: LossName = "seq2seq"

    def _encode(self, example: Example) -> EncodedExample | None:
        target = example.completion or ("" if example.label is None else str(example.label))
        if not target:
            return None
        wanted = self.model.tokenizer(text_target=target, truncation=True, max_length=self._limit)
        ids, _, _ = self._tokens(example.text, example.pair)
        return EncodedExample(ids=ids, targets=list(wanted["input_ids"]))

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        start = decoder_start(self.model.config)
        # the decoder reads what is behind the last token of a text after all that counts
        read = padded([[start, *example.targets] for example in batch], 0, self.model.device)
        output = self.model.whole(**self._inputs(batch), decoder_input_ids=read[:, :-1])
        return summed_cross_entropy(output.logits, self._targets(batch))


@dataclass(slots=True)
class ContrastiveLoss(Loss):
    """Cross-entropy of finding a text's second reading, under other dropout, in its batch, for
    encoders without a head: unsupervised SimCSE (Gao, Yao, Chen 2021, section 3)."""

    name: LossName = "contrastive"
    needs_dropout: bool = True

    def _encode(self, example: Example) -> EncodedExample:
        ids, types, _ = self._tokens(example.text, example.pair)
        return EncodedExample(ids=ids, types=types)

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        states = self._pooled_states([*batch, *batch]).float()
        unit = torch.nn.functional.normalize(states, dim=1)
        cosines = unit[: len(batch)] @ unit[len(batch) :].T / TEMPERATURE
        own = torch.arange(len(batch), device=cosines.device)
        return torch.nn.functional.cross_entropy(cosines, own, reduction="sum"), len(batch)


@dataclass(slots=True)
class FittedHeadLoss(Loss):
    """Cross-entropy of classes, or squared error of numbers, by a linear head that is fitted on the
    frozen base; a regression has no names of classes."""

    name: LossName = "classification"
    classes: tuple[str, ...] = ()
    _weights: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    _bias: torch.Tensor = field(default_factory=lambda: torch.zeros(0))

    def _encode(self, example: Example) -> EncodedExample | None:
        label = example.label
        if label is None:
            return None
        ids, types, _ = self._tokens(example.text, example.pair)
        value = float(self.classes.index(str(label)) if self.classes else label)
        return EncodedExample(ids=ids, types=types, value=value)

    def prepare(self, encoded: Sequence[EncodedExample], batch_size: int, known: States) -> None:
        """Fit the head on all examples, states as the frozen base has them."""
        new = [example for example in encoded if example.read not in known]
        with torch.inference_mode():
            for batch in self.batches(new, batch_size):
                pooled = self._pooled_states(batch).float().cpu()
                known |= zip((example.read for example in batch), pooled, strict=True)
        states = torch.stack([known[example.read] for example in encoded])
        values = torch.tensor([example.value for example in encoded])
        weights, bias = fit_head(states, values, len(self.classes))
        self._weights, self._bias = weights.to(self.model.device), bias.to(self.model.device)

    def total(self, batch: Sequence[EncodedExample]) -> tuple[torch.Tensor, int]:
        outputs = self._pooled_states(batch).float() @ self._weights.T + self._bias
        values = torch.tensor([example.value for example in batch], device=self.model.device)
        if self.classes:
            loss = torch.nn.functional.cross_entropy(outputs, values.long(), reduction="sum")
        else:
            loss = (outputs[:, 0] - values).square().sum()
        return loss, len(batch)


def fit_head(
    states: Float32[torch.Tensor, "texts dim"],
    values: Float32[torch.Tensor, " texts"],
    n_classes: int,
) -> tuple[Float32[torch.Tensor, "outputs dim"], Float32[torch.Tensor, " outputs"]]:
    """Weights and bias of the head that minimises the mean loss and `PENALTY` × |weights|²; numbers
    in units of their standard deviation. Deterministic: L-BFGS from zeros."""
    wide = states.double()
    centre = wide.mean(dim=0)
    scale = (wide - centre).square().mean().sqrt().clamp(min=1e-12)
    inputs = (wide - centre) / scale
    n_outputs = n_classes or 1
    weights = torch.zeros(n_outputs, wide.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(n_outputs, dtype=torch.float64, requires_grad=True)
    middle, spread = values.double().mean(), values.double().std().clamp(min=1e-12)
    wanted = values.long() if n_classes else (values.double() - middle) / spread
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        outputs = inputs @ weights.T + bias
        if n_classes:
            loss = torch.nn.functional.cross_entropy(outputs, wanted)
        else:
            loss = (outputs[:, 0] - wanted).square().mean()
        loss = loss + PENALTY * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    fitted = weights.detach() / scale
    shift = bias.detach() - fitted @ centre
    if not n_classes:
        fitted, shift = fitted * spread, shift * spread + middle
    return fitted.float(), shift.float()


def padded(
    rows: Sequence[Sequence[int]], padding: int, device: torch.device
) -> Int64[torch.Tensor, "texts tokens"]:
    width = max(len(row) for row in rows)
    numbers = [[*row, *[padding] * (width - len(row))] for row in rows]
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def summed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The sum of the cross-entropy, in float32, where a target counts, and how many do; logits of
    other tokens are left out before they are widened."""
    counted = targets != IGNORED
    chosen = logits[counted].float()
    loss = torch.nn.functional.cross_entropy(chosen, targets[counted], reduction="sum")
    return loss, int(counted.sum())


def choose_loss(
    model: TaskModel,
    examples: Sequence[Example],
    *,
    max_tokens: int,
    seed: int = 0,
    wanted: LossName | None = None,
) -> Loss:
    """The loss that fine-tunes of this base would minimise on these examples, or the `wanted` one.

    A base that predicts the next token takes its own loss, whatever labels there are; an encoder
    takes labels where there are some. RequestError says what the base or the examples lack.
    """
    name = wanted or _usual(model, examples)
    _require_head(model, name)
    if name == "causal":
        return CausalLoss(model, max_tokens)
    if name == "seq2seq":
        if not any(example.completion or example.label is not None for example in examples):
            raise RequestError(
                f"{model.name} writes one text from another, and the data set has no second text: "
                "name the column of answers"
            )
        return SequenceToSequenceLoss(model, max_tokens)
    if name == "masked":
        return MaskedLoss(model, max_tokens, seed=seed)
    if name == "contrastive":
        return ContrastiveLoss(model, max_tokens)
    labels = [example.label for example in examples if example.label is not None]
    if name == "regression":
        _require_numbers(labels)
        return FittedHeadLoss(model, max_tokens, "regression")
    return FittedHeadLoss(model, max_tokens, classes=_classes(model, labels))


def _usual(model: TaskModel, examples: Sequence[Example]) -> LossName:
    """By the base's head; for encoders, labels come first."""
    if model.head == "next":
        return "causal"
    if model.head == "translated":
        return "seq2seq"
    labels = {example.label for example in examples if example.label is not None}
    if labels:
        is_number = all(isinstance(label, float) for label in labels)
        return "regression" if is_number else "classification"
    if model.head == "masked":
        return "masked"
    if model.missing_head in (None, "masked"):
        return "contrastive"
    raise RequestError(
        f"{model.name} was saved without its language-model head, and the data set has no labels: "
        "name a base with its head, or the column of labels"
    )


def _require_head(model: TaskModel, name: LossName) -> None:
    needed = {"causal": "next", "seq2seq": "translated", "masked": "masked"}.get(name)
    if needed is not None and model.head != needed:
        why = (
            "its checkpoint lacks the head"
            if model.missing_head == needed
            else "it has no such head"
        )
        raise RequestError(f"{model.name}: no {name} loss: {why}")


def _require_numbers(labels: Sequence[str | float]) -> None:
    numbers = {as_number(str(label)) for label in labels}
    if not numbers or None in numbers:
        raise RequestError("a regression needs a column of numbers as labels")
    if len(numbers) < 2:
        raise RequestError(
            f"every label is {labels[0]} in {count(len(labels), 'example')}: {NOTHING}"
        )


def _classes(model: TaskModel, labels: Sequence[str | float]) -> tuple[str, ...]:
    classes = tuple(sorted({str(label) for label in labels}))
    if not classes:
        raise RequestError(
            f"{model.name}: a classification needs labels: name the column that has them"
        )
    if len(classes) == 1:
        of = count(len(labels), "example")
        raise RequestError(f"every label is {classes[0]!r} in {of}: {NOTHING}")
    return classes
