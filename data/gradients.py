"""The gradients of a model's layer matrices, from hooks to sketches.

No parameter requires a gradient: what the first matrices give does, so that a backward pass hands
each matrix its δ and stores nothing else. Of a large matrix two products with random matrices are
kept, the range sketch Y = G Ω and the co-range sketch Z = Ψ G (Tropp, Yurtsever, Udell, Cevher
2017, Alg. 4): both are linear in G, and cost less than G itself.

A gradient's spectrum falls steeply, and its first directions are what all data asks of a base;
Adam's updates fall less. So each block of a query's sketch has powers of the singular values of its
own, which the loss decides: `SPECTRUM_POWERS`, measured by `benchmarks.families score-data`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import get_args

import numpy as np
import torch
from torch import nn

from .. import records
from ..arrays import Float, Float32
from ..errors import ModelError, OtherBase, RequestError
from ..indexer import (
    Delta,
    DenseDelta,
    LowRankDelta,
    MatrixUpdate,
    PlacedModel,
    Placement,
    SketchPool,
    factorise,
    flaw_of,
    gaussian_directions,
    place,
)
from ..results import agree, count
from ..study.network.language_head import TaskModel
from .examples import Example, ExampleSet, places_of_every_class
from .losses import EncodedExample, Loss, States, choose_loss

WEIGHT = ".weight"
SUM_BYTES = 400 << 20
"""Bytes of the sums of one part and of the total. Matrices that fit are added up as they are."""

FEWEST_COLUMNS, MOST_COLUMNS = 24, 128
"""Of the range sketch of a matrix that does not fit."""

CORANGE = 2
"""Rows of Z for each column of Y, as the source's section 4.5 advises."""

RANGE_SEED, CORANGE_SEED = 17, 18

POWER_STEPS = 2
"""Of the randomised SVD of a gradient: two ways of adding it up then give the same directions."""

RANK = 40
"""Of a gradient's factors, where the recipe's is lower: low powers of σ make use of them."""

LEAST_SIGMA = 1e-3
"""Of the largest σ; directions below are rounding, and no power may raise them."""


Deltas = Float32[torch.Tensor, "tokens out"]
Inputs = Float32[torch.Tensor, "tokens in"]


@dataclass(frozen=True, slots=True)
class LayerMatrices:
    """The modules of a loaded model that apply its layer matrices, by name, with the matrices cut
    out of each; without those that no module of their own applies, such as stacked experts."""

    modules: Mapping[str, tuple[nn.Module, tuple[Placement, ...]]]

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(p for _, placements in self.modules.values() for p in placements)


def layer_matrices(model: nn.Module, config: Mapping[str, object] | None) -> LayerMatrices:
    """The slots of a model in memory; ModelError where its layer matrices are not known, or none is
    applied by a module."""
    placed: PlacedModel = place(
        {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, config
    )
    placed.require_known()
    modules: dict[str, tuple[nn.Module, tuple[Placement, ...]]] = {}
    for tensor, placements in placed.by_tensor().items():
        name = tensor.removesuffix(WEIGHT)
        module = model.get_submodule(name) if tensor.endswith(WEIGHT) else None
        # x Wᵀ + b, or x W + b
        if module and (isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"):
            modules[name] = module, tuple(placements)
    if not modules:
        raise ModelError("unknown-architecture", "no layer matrix is applied by a module")
    return LayerMatrices(modules)


def require_same_base(
    model: TaskModel, architecture: str | None, shapes: Mapping[str, tuple[int, int]]
) -> None:
    """Raise `OtherBase` where the family's matrices have other types or shapes than the model's;
    weights of the same shapes that were replaced are not noticed."""
    found = str(model.config.model_type)
    if architecture not in (None, found):
        raise OtherBase(
            f"{model.name} is a {found} model now, and the family was indexed from a "
            f"{architecture} model: index the family again"
        )
    for placement in layer_matrices(model.whole, model.config.to_dict()).placements:
        slot = str(placement.slot)
        if slot in shapes and not placement.part and shapes[slot] != placement.shape:
            now, before = list(placement.shape), list(shapes[slot])
            raise OtherBase(
                f"{model.name}: {slot} is {now} now and was {before} when the family was "
                "indexed: index the family again"
            )


class DenseSum:
    """The gradient of one layer matrix, (out, in), added up in buffers that are linear in it."""

    buffers: tuple[torch.Tensor, ...]

    def __init__(self, shape: tuple[int, int], device: torch.device) -> None:
        self.buffers = (torch.zeros(shape, device=device),)

    def add(self, deltas: Deltas, inputs: Inputs) -> None:
        """Add δ xᵀ of some tokens."""
        self.buffers[0].addmm_(deltas.T, inputs)

    def descent(self, scale: float) -> Delta:
        """−`scale` times the gradient: the direction that training moves the matrix in."""
        return DenseDelta(self.buffers[0] * -scale)

    def add_sum(self, other: DenseSum) -> None:
        for own, others in zip(self.buffers, other.buffers, strict=True):
            own += others


class StreamedSum(DenseSum):
    """Its sketches from both sides. Memory: (out + `CORANGE` × in) × columns float32."""

    def __init__(self, shape: tuple[int, int], device: torch.device, columns: int) -> None:
        n_out, n_in = shape
        self._shape = shape
        self._range = torch.zeros(n_out, min(columns, n_in), device=device)
        self._corange = torch.zeros(min(CORANGE * columns, n_out), n_in, device=device)
        self.buffers = self._range, self._corange

    def add(self, deltas: Deltas, inputs: Inputs) -> None:
        self._range.addmm_(deltas.T, inputs @ self._right(inputs.device).T)
        self._corange.addmm_((deltas @ self._left(deltas.device).T).T, inputs)

    def descent(self, scale: float) -> Delta:
        """G ≈ Q (Ψ Q)⁺ Z with Q an orthonormal basis of the range sketch."""
        wide = self._range.cpu().double()
        length = float(torch.linalg.vector_norm(wide))
        if not (length > 0.0 and math.isfinite(length)):
            return DenseDelta(torch.zeros(self._shape)) if length == 0.0 else DenseDelta(wide)
        basis, _ = torch.linalg.qr(wide / length)
        seen, triangle = torch.linalg.qr(self._left(torch.device("cpu")).double() @ basis)
        projected = seen.T @ self._corange.cpu().double()
        # the least-squares solution; a direction that Ψ does not see would be divided by nothing
        solved = torch.linalg.pinv(triangle, rtol=1e-10) @ projected
        return LowRankDelta((basis * -scale).float(), solved.float())

    def _right(self, device: torch.device) -> Float[torch.Tensor, "range in"]:
        return gaussian_directions(RANGE_SEED, self._range.shape[1], self._shape[1]).to(device)

    def _left(self, device: torch.device) -> Float[torch.Tensor, "corange out"]:
        return gaussian_directions(CORANGE_SEED, self._corange.shape[0], self._shape[0]).to(device)


class GradientSums:
    """The sums of all layer matrices, or range sketches of so many `columns` in their place."""

    def __init__(self, matrices: LayerMatrices, columns: int | None, device: torch.device) -> None:
        self.matrices = matrices
        self._sums = [
            [
                DenseSum(placement.shape, device)
                if columns is None
                else StreamedSum(placement.shape, device, columns)
                for placement in placements
            ]
            for _, placements in matrices.modules.values()
        ]

    @contextmanager
    def collecting(self, model: nn.Module) -> Iterator[None]:
        """Add the gradients of every loss that is run backward in the block."""
        with ExitStack() as attached:
            for (module, placements), sums in zip(
                self.matrices.modules.values(), self._sums, strict=True
            ):
                attached.enter_context(module.register_forward_hook(_collector(placements, sums)))
            with torch.enable_grad():
                yield

    def add_sums(self, other: GradientSums) -> None:
        for total, part in zip(chain(*self._sums), chain(*other._sums), strict=True):
            total.add_sum(part)

    def updates(self, scale: float) -> Iterator[MatrixUpdate]:
        """−`scale` times each gradient, as if it were a fine-tune's ΔW; one at a time. ModelError
        for one that holds NaN or infinity, or overflows."""
        for placement, total in zip(self.matrices.placements, chain(*self._sums), strict=True):
            delta = total.descent(scale)
            norm = delta.norm
            stored = (delta.matrix,) if isinstance(delta, DenseDelta) else (delta.left, delta.right)
            if flaw := flaw_of(norm, *stored):
                raise ModelError("non-finite", f"the gradient of {placement.tensor!r} {flaw}")
            yield MatrixUpdate(
                slot=placement.slot,
                part=placement.part,
                delta=delta if norm > 0 else None,
                shape=placement.shape,
                noise_norm=0.0,
                weight_norm=None,
            )

    def pooled(
        self, recipe: records.Recipe, *, scale: float, powers: Mapping[str, float]
    ) -> SketchPool:
        """−`scale` times the gradients under a recipe, with these powers of σ."""
        pool = SketchPool(recipe, powers)
        for update in self.updates(scale):
            if update.delta is None:
                continue
            factors = factorise(
                update.delta, max(recipe.rank, RANK), seed=recipe.seed, power_steps=POWER_STEPS
            )
            if len(factors.sigma):
                factors = factors.above(LEAST_SIGMA * float(factors.sigma[0]))
                rest = replace(update, delta=None)
                pool.take(rest, factors, pool.features(rest, factors))
        return pool

    def sketches(self, pool: SketchPool) -> dict[records.Slot, bytes]:
        """The sketch of each slot that `pooled` gave."""
        slots = sorted({placement.slot for placement in self.matrices.placements})
        return {slot: sketch for slot in slots if (sketch := pool.slot_sketch(slot))}


def columns_of(matrices: LayerMatrices, streamed: bool | None = None) -> int | None:
    """The columns of range sketches that fit into `SUM_BYTES`; None where the sums fit, or are to
    be kept."""
    shapes = [placement.shape for placement in matrices.placements]
    if streamed is None:
        streamed = 2 * 4 * sum(n_out * n_in for n_out, n_in in shapes) > SUM_BYTES
    if not streamed:
        return None
    column_bytes = 2 * 4 * sum(n_out + CORANGE * n_in for n_out, n_in in shapes)
    return max(FEWEST_COLUMNS, min(MOST_COLUMNS, SUM_BYTES // column_bytes))


def _collector(
    placements: Sequence[Placement], sums: Sequence[DenseSum]
) -> Callable[[nn.Module, tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]:
    """A forward hook; each call of the module waits for its own δ, as layers may share it."""

    def leave(_: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        inputs = args[0].detach()

        def arrive(gradient: torch.Tensor) -> None:
            rows = inputs.reshape(-1, inputs.shape[-1])
            deltas = gradient.detach().reshape(-1, gradient.shape[-1])
            counts = deltas.abs().amax(dim=1) != 0
            if 2 * int(counts.sum()) < len(counts):  # in a last layer whose first token is read
                rows, deltas = rows[counts], deltas[counts]
            for placement, total in zip(placements, sums, strict=True):
                total.add(placement.cut_rows(deltas.float().T).T, rows.float())

        # of a first matrix, of which no input requires a gradient; a leaf allows no change in place
        given = output if output.requires_grad else output.requires_grad_().clone()
        given.register_hook(arrive)  # type: ignore[no-untyped-call]
        return given

    return leave


PARTS = 8
"""Disjoint groups of examples, each with a fingerprint of its own."""

FEWEST = 8
TOKEN_POWERS = {"update": 0.25, "output": 1.0, "input": 0.5}
CLASS_POWERS = {"update": 0.5, "output": 1.0, "input": 1.0}
SPECTRUM_POWERS: dict[records.LossName, Mapping[str, float]] = {
    loss: TOKEN_POWERS if loss in records.TOKEN_LOSSES else CLASS_POWERS
    for loss in get_args(records.LossName)
}
"""What singular values of a gradient are raised to in each block: see `gradients.py`. Tokens of a
vocabulary give gradients of many directions that hold data; a few classes give few. Measured for
`causal` and `classification`; the others follow the nearer of the two."""

Progress = Callable[[int, int], object]
"""Told how many examples of how many are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataQueryOptions:
    """How a data set becomes a fingerprint: with `loss` instead of the base's usual one, texts cut
    to `max_tokens`, in `parts` disjoint groups (fewer of few examples); 0 for the whole alone, also
    without permuted labels. The seed decides groups, masks and dropout. `streamed` keeps sketches
    of the gradients and not the gradients; None decides by size."""

    loss: records.LossName | None = None
    max_tokens: int = 128
    batch_size: int = 16
    parts: int = PARTS
    seed: int = 0
    streamed: bool | None = None


DEFAULT = DataQueryOptions()


def fingerprint_data(
    model: TaskModel,
    examples: Sequence[Example],
    recipe: records.Recipe,
    options: DataQueryOptions = DEFAULT,
    progress: Progress | None = None,
    beside: Sequence[Example] = (),
    known: States | None = None,
) -> records.DataSet:
    """The fingerprint of −∇ of the mean loss over examples, as if it were a full fine-tune's ΔW,
    whatever their order, by a recipe of sketches of whole matrices; a head is fitted on the classes
    of examples `beside` them too, by states that are `known` already or will be. Peak: the model,
    the activations of one batch, and up to 500 MiB.

    Raises RequestError where the base or the examples lack what a loss needs, or too few are left;
    ModelError where the base's layer matrices are not known, or its gradient is not finite.
    """
    fitted_on = [*examples, *beside]
    loss = choose_loss(
        model, fitted_on, max_tokens=options.max_tokens, seed=options.seed, wanted=options.loss
    )
    encoded = loss.encode(sorted(examples, key=_sort_key))
    if len(encoded) < FEWEST:
        raise RequestError(
            f"{count(len(encoded), 'example')} {agree(len(encoded), 'has')} something to predict; "
            f"at least {FEWEST} are needed"
        )
    head_of = loss.encode(sorted(fitted_on, key=_sort_key)) if beside else encoded
    loss.prepare(head_of, options.batch_size, {} if known is None else known)
    powers = SPECTRUM_POWERS[loss.name]
    matrices = layer_matrices(model.whole, model.config.to_dict())
    columns = columns_of(matrices, options.streamed)
    total = GradientSums(matrices, columns, model.device)
    parts: dict[str, Mapping[records.Slot, bytes]] = {}
    loss_sum, n_predicted = 0.0, 0
    groups = _groups(encoded, options)
    for number, group in enumerate(groups):
        sums = GradientSums(matrices, columns, model.device) if options.parts else total
        with sums.collecting(model.whole), _dropout(model.whole, loss, options.seed + number):
            group_sum, predicted = _backward(loss, group, options.batch_size)
        loss_sum, n_predicted = loss_sum + group_sum, n_predicted + predicted
        if sums is not total:
            part = sums.pooled(recipe, scale=1.0 / predicted, powers=powers)
            parts[f"{records.GROUP} {number}"] = sums.sketches(part)
            total.add_sums(sums)
        if progress is not None:
            progress(sum(len(done) for done in groups[: number + 1]), len(encoded))
    pool = total.pooled(recipe, scale=1.0 / n_predicted, powers=powers)
    vector, norm = pool.vector()
    vector.flags.writeable = False
    if not norm > 0.0:
        raise ModelError("no-update", f"{model.name}: the gradient of these examples is 0")
    return records.DataSet(
        loss=loss.name,
        examples=len(encoded),
        counts={
            "classes": len(getattr(loss, "classes", ())),
            "predicted": n_predicted,
            "tokens": sum(len(example.ids) for example in encoded),
            "mean_loss": loss_sum / n_predicted,
        },
        fingerprint=records.Fingerprint(recipe=recipe, vector=vector, norm=norm),
        sketches={records.WHOLE: total.sketches(pool), **parts},
    )


def _backward(loss: Loss, group: Sequence[EncodedExample], batch_size: int) -> tuple[float, int]:
    """Run a group forward and backward: the sum of its losses, and of how many predictions."""
    loss_sum, n_predicted = 0.0, 0
    for batch in loss.batches(group, batch_size):
        total, predicted = loss.total(batch)
        value = float(total.detach())
        if not np.isfinite(value):
            raise ModelError("non-finite", f"{loss.model.name}: the loss is {value}")
        total.backward()  # type: ignore[no-untyped-call]
        loss_sum, n_predicted = loss_sum + value, n_predicted + predicted
    return loss_sum, n_predicted


def _sort_key(example: Example) -> tuple[str, ...]:
    return *example.texts, str(example.label)


def _groups(
    encoded: Sequence[EncodedExample], options: DataQueryOptions
) -> list[list[EncodedExample]]:
    """Disjoint groups of equal size, at random but with each class in equal shares."""
    n_groups = max(1, min(options.parts, len(encoded) // FEWEST))
    order = np.random.default_rng(options.seed).permutation(len(encoded)).tolist()
    order.sort(key=lambda row: encoded[row].value)  # stable: at random inside of a class
    return [[encoded[row] for row in order[number::n_groups]] for number in range(n_groups)]


@contextmanager
def _dropout(model: nn.Module, loss: Loss, seed: int) -> Iterator[None]:
    """With dropout for losses that need it, by a seed that nothing else is drawn from."""
    if not loss.needs_dropout:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        try:
            yield
        finally:
            model.eval()


PERMUTED_EXAMPLES = 128
"""Of the control with permuted labels: a quarter of the usual examples."""

FEWEST_MATCHED = 4 * FEWEST
"""Of each of two data sets that are compared: four groups."""


def wants_labels(examples: ExampleSet, options: DataQueryOptions) -> bool:
    """Whether an encoder is fine-tuned on these with a head for labels."""
    if options.loss is None:
        return examples.kind in ("classes", "numbers")
    return options.loss in records.LABELLED_LOSSES


def make_data_set(
    model: TaskModel,
    examples: ExampleSet,
    *,
    name: str,
    base: str,
    recipe: records.Recipe,
    options: DataQueryOptions,
    progress: Progress | None = None,
    beside: ExampleSet | None = None,
) -> records.DataSet:
    """The data set as a query of a family's recipe; nothing of it holds a text or the
    name of a class. A head of classes or numbers is fitted also on the data set `beside` that it
    will be compared with, so that it favours neither. Raises as `fingerprint_data`."""
    others = () if beside is None else beside.examples
    states: States = {}
    made = fingerprint_data(model, examples.examples, recipe, options, progress, others, states)
    sketches = dict(made.sketches)
    control = _with_permuted_labels(examples.examples, options.seed) if options.parts else []
    if made.loss in records.LABELLED_LOSSES and len({example.label for example in control}) > 1:
        alone = replace(options, parts=0, loss=made.loss)
        permuted = fingerprint_data(model, control, recipe, alone, known=states)
        sketches[f"{records.PERMUTED} 0"] = permuted.whole
    head = {}
    if beside is not None and made.loss in records.LABELLED_LOSSES:
        # the same for either of the two files that it was fitted on
        head["head"] = " + ".join(sorted(one.sha256[:12] for one in (examples, beside)))
    return replace(
        made,
        name=name,
        base=base,
        sha256=examples.sha256,
        settings={
            **asdict(options),
            "loss": made.loss,
            "draw_seed": examples.seed,
            "split": examples.split,
            **head,
            "columns": {found.part: found.column for found in examples.found},
        },
        counts={
            "rows": examples.rows,
            "skipped": {skip.reason: skip.rows for skip in examples.skipped},
            **made.counts,
        },
        sketches=sketches,
    )


def _with_permuted_labels(examples: Sequence[Example], seed: int) -> list[Example]:
    """The first `PERMUTED_EXAMPLES`, every class among them if they can hold it."""
    labels = [example.label for example in examples]
    places = places_of_every_class(labels, PERMUTED_EXAMPLES)
    order = np.random.default_rng([seed, len(places)]).permutation(len(places)).tolist()
    return [
        replace(examples[place], label=labels[places[other]])
        for place, other in zip(places, order, strict=True)
    ]


def matched_examples(
    data: ExampleSet, control: ExampleSet
) -> tuple[ExampleSet, ExampleSet, tuple[str, ...]]:
    """The two with as many examples of each, and sentences about what was left out: examples that
    are in both, and those of a class that one of the files lacks. Both keep the beginning of their
    draw, with one example at least of each class.

    Raises RequestError: they are the same file, have other columns or classes, or too few differ.
    """
    if data.sha256 == control.sha256:
        raise RequestError(f"{control.source} is the same file as {data.source}")
    if data.kind != control.kind:
        raise RequestError(
            f"{data.source} has {data.kind}, {control.source} {control.kind}: name the columns of "
            "both alike with --text and --label"
        )
    classes, others = set(data.classes), set(control.classes)
    alone = classes ^ others
    if alone and len(classes & others) < 2:
        raise RequestError(
            f"{data.source} has the classes {_listed(classes)}, {control.source} "
            f"{_listed(others)}: a control has the same"
        )
    comparable = [[e for e in one.examples if e.label not in alone] for one in (data, control)]
    shared = set.intersection(*({example.texts for example in some} for some in comparable))
    left = [[e for e in some if e.texts not in shared] for some in comparable]
    n = min(map(len, left))
    notes = []
    if alone:
        notes.append(f"left out: classes that only one of the two has ({_listed(alone)})")
    if shared:
        notes.append(
            f"left out: {len(shared)} of {count(len(data.examples), 'example')} "
            f"({len(shared) / len(data.examples):.0%}) that {control.source} has too; a control "
            "shares none"
        )
    if n < FEWEST_MATCHED:
        raise RequestError(
            f"{data.source} and {control.source} have {count(n, 'example')} each to compare"
            f"{'; '.join(['', *notes])}; at least {FEWEST_MATCHED} are needed"
        )
    matched = []
    for one, examples in zip((data, control), left, strict=True):
        labels = [example.label if one.classes else None for example in examples]
        chosen = [examples[place] for place in places_of_every_class(labels, n)]
        matched.append(replace(one, examples=tuple(chosen)))
    return matched[0], matched[1], tuple(notes)


def _listed(names: set[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:most])
    return shown + (", …" if len(names) > most else "")
