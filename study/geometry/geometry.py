"""The geometry study of a model: its options, its answer, and the tables of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING

from ...options import option, record
from ...results import Document, Section, count, share
from ..study import OpenCatalog, StudyTable, TextStudy, find_subject, load_texts, seed_option, study

if TYPE_CHECKING:
    from ..network.model_loading import Network
    from ..texts import Texts
    from .geometry_report import GeometryReport

ESTIMATOR_NAMES = {
    "facco": "TwoNN (facco)",
    "mle": "TwoNN, maximum likelihood (mle)",
    "low-fifth": "TwoNN on the lowest fifth, LLM-Microscope's (low-fifth)",
}

UNTRAINED = ", untrained"

FEW = "too few"

APART = 1.5

DIFFERENCE_LAYERS = 5
"""Layers of a table of differences, whose cells hold intervals."""

MAIN_ESTIMATORS = ("facco", "gram", "exact", "least squares", "softmax-mean")

DIVERGENCES = (
    ("gauss", "jeffreys", "Jeffreys, Gaussians"),
    ("softmax-mean", "to_reference", "KL to it, softmax of means"),
)

MORE_DIVERGENCES = (
    ("gauss", "to_reference", "KL to it, Gaussians"),
    ("gauss", "from_reference", "KL from it, Gaussians"),
    ("softmax-mean", "from_reference", "KL from it, softmax of means"),
)

NamedGroup = tuple[str, Document]


@record
class Geometry(TextStudy):
    """Measure dimension, anisotropy, linearity and divergence of hidden states, by layer.

    Returns:
        A row for each group of texts: `group`, `tokens`, and `layers` with every measure.

    Raises:
        StudyError: the network or the texts cannot be studied.

    >>> study = db.studies.geometry("imdb-0", texts="texts.txt", untrained=True)
    >>> study[0]["tokens"] > 100, [c["condition"] for c in study.to_json()["contrasts"]]
    (True, ['untrained'])
    """

    name = "geometry"
    version = 2
    examples = (
        "geometry ./my-run --texts flores/ --reference eng_Latn -o geometry.png",
        "geometry ./my-run --texts mr.csv --untrained --scrambled --all",
    )

    _: KW_ONLY
    reference: str | None = option(
        default=None, help="The group that the others are compared with: eng_Latn."
    )
    untrained: bool = option(
        default=False, help="Measure a network of the same shape with fresh weights beside it."
    )
    scrambled: bool = option(
        default=False,
        help="Measure each text with its words in random order too, in a further group.",
    )
    keep_tokens: int = option(
        default=2000,
        least=100,
        help="Tokens of each group that intrinsic dimension is estimated from.",
    )
    seed: int = seed_option("tokens, fresh weights, scrambled words and the bootstrap")

    def answer(self, db: OpenCatalog) -> GeometryTable:
        device = self.usable_device()
        texts = load_texts(self.texts)
        subject = find_subject(db.catalog, self.model, self.base)
        network = subject.load(device)
        text_notes = self.text_notes(network, texts)
        report = self.measure(db, network, texts)
        document = {"model": network.name} | report.to_json() | text_notes
        db.save(subject, self.name, self.settings(texts=texts.digest, method="gram"), document)
        title = f"Geometry of {network.name}"
        return GeometryTable(document | subject.base_notes, report, title, model=network.name)

    def measure(self, db: OpenCatalog, network: Network, read: Texts) -> GeometryReport:
        """The report of a network on texts, and on scrambled ones where they are wanted."""
        from ..network.model_loading import untrained_twin
        from ..texts import Texts
        from .geometry_report import geometry_study
        from .group_states import GeometryOptions, scrambled

        entries = read.entries
        if self.scrambled:
            entries += tuple(scrambled(read.entries, self.seed))
        texts = Texts(entries, read.broken)
        twin = untrained_twin(network, seed=self.seed) if self.untrained else None

        def tokenize(text: str) -> list[int]:
            return list(network.tokenizer(text, add_special_tokens=False).input_ids)

        return geometry_study(
            self.states(db, network, texts),
            texts.entries,
            untrained=None if twin is None else self.states(db, twin, texts),
            reference=self.reference,
            options=GeometryOptions(keep=self.keep_tokens, seed=self.seed),
            tokenize=None if network.tokenizer is None else tokenize,
            unknown=getattr(network.tokenizer, "unk_token_id", None),
        )


class GeometryTable(StudyTable):
    """The shape of hidden states, a row for each group of texts."""

    columns = ("group", "tokens")
    _key = "groups"
    _picture = "draw_geometry"

    def sections(self, *, everything: bool = False) -> Iterator[Section]:
        document = self._document
        groups = list(_named_groups(document))
        yield Section(
            title=f"geometry of {document['model']} by hidden state: 0 is the embedding, n is "
            "behind n layers"
        )
        for title, cell in (*_dimensions(document), *_clouds(everything)):
            rows = [(name, g["tokens"], *map(cell, g["layers"])) for name, g in groups]
            yield _by_layer(document, title, ("group", "tokens"), rows)
        yield Section(notes=list(_limits(document, groups)))
        if document["reference"] is not None:
            wanted = (*DIVERGENCES, *(MORE_DIVERGENCES if everything else ()))
            yield from (_divergence(document, groups, *kind) for kind in wanted)
        cut = [g for g in document["groups"] if g["fertility"]]
        if len(cut) > 1:
            keys = ("tokens_per_word", "tokens_per_character", "unknown_share")
            yield Section(
                title="fertility: a group that is cut into more tokens differs by that alone",
                columns=("group", "tokens per word", "per character", "share unknown"),
                rows=[(g["group"], *(share(g["fertility"][key]) for key in keys)) for g in cut],
            )
        yield from _differences(document, everything)


def _by_layer(
    document: Document,
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    most: int = 12,
    notes: Sequence[str] = (),
) -> Section:
    n_layers = document["n_layers"]
    return Section(
        title=title if rows else "",
        columns=(*heads, *range(n_layers)) if rows else (),
        rows=rows,
        by_layer=range(len(heads), len(heads) + n_layers) if rows else range(0),
        most=most,
        notes=notes,
    )


def _named_groups(document: Document) -> Iterator[NamedGroup]:
    fresh = {group["group"]: group for group in document["untrained"]}
    for group in document["groups"]:
        name = group["group"] or "all"
        yield name, group
        if group["group"] in fresh:
            yield f"{name}{UNTRAINED}", fresh[group["group"]]


def _dimensions(document: Document) -> Iterator[tuple[str, Callable[[Document], str]]]:
    rows = "" if document["sample"] is None else f", N = {document['sample']}"
    for estimator, name in ESTIMATOR_NAMES.items():
        title = f"intrinsic dimension: {name}{rows}"
        yield title, partial(_dimension, estimator)


def _clouds(everything: bool) -> Iterator[tuple[str, Callable[[Document], str]]]:
    """Of whole clouds: directions and linearity."""

    def of(key: str) -> Callable[[Document], str]:
        return lambda layer: share(layer["anisotropy"][key] if layer["anisotropy"] else None)

    yield "anisotropy, centred", of("centred")
    if everything:
        yield "anisotropy, un-centred", of("uncentred")
    yield "mean cosine", of("mean_cosine")
    for key, title in (("stream", "with"), ("contribution", "without")):
        name = f"linearity of the step from the layer before, {title} the residual stream"
        yield f"{name}, held out", partial(_linearity, f"held_out_{key}")
        if everything:
            yield f"{name}, on the tokens of the fit", partial(_linearity, key)


def _linearity(key: str, layer: Document) -> str:
    step = layer["linearity"]
    if step is None or step[key] is not None:
        return share(step and step[key])
    # held out of too few, though the whole is enough
    without_halves = "held_out" in key and step[key.removeprefix("held_out_")] is not None
    return FEW if without_halves or step["reason"].startswith(FEW) else "–"


def _dimension(estimator: str, layer: Document) -> str:
    estimate = next(d for d in layer["intrinsic_dimension"] if d["estimator"] == estimator)
    if estimate["dimension"] is None:
        return FEW if estimate["reason"].startswith(FEW) else "–"
    error = estimate["standard_error"]
    return f"{estimate['dimension']:.1f}" + (f"±{error:.1f}" if error is not None else "")


def _limits(document: Document, groups: Sequence[NamedGroup]) -> Iterator[str]:
    """What the numbers do not say: too few rows, estimators that disagree, too few texts."""
    few = list(_too_few(groups))
    yield from few
    if few and document["sample_set_by"]:
        yield (
            f"N = {document['sample']}: the distinct rows of {document['sample_set_by']}; "
            "give more texts, or raise --keep-tokens"
        )
    for name, group in groups:
        yield from (f"{name}: {note}" for note in group["notes"])
        if apart := _layers_apart(group):
            yield (
                f"{name}: the estimators differ by more than {APART} times in hidden states "
                f"{', '.join(map(str, apart))}: the tokens do not follow TwoNN's law there"
            )
    limits: dict[str, list[str]] = {}
    for name, group in groups:
        for line in _linearity_limits(group):
            limits.setdefault(line, []).append(name)
    yield from (f"linearity of {'; '.join(names)}: {line}" for line, names in limits.items())


def _layers_apart(group: Document) -> list[int]:
    found = []
    for layer in group["layers"]:
        values = [d["dimension"] for d in layer["intrinsic_dimension"]]
        known = [value for value in values if value is not None]
        if known and max(known) > APART * min(known):
            found.append(layer["layer"])
    return found


def _too_few(groups: Sequence[NamedGroup]) -> Iterator[str]:
    missing: dict[str, list[str]] = {}
    for name, group in groups:
        for layer in group["layers"]:
            for estimate in layer["intrinsic_dimension"]:
                if estimate["reason"]:
                    where = f"{name}, layer {layer['layer']}: {estimate['reason']}"
                    missing.setdefault(estimate["estimator"], []).append(where)
    for estimator, places in missing.items():
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        yield f"{estimator}: {places[0]}{more}"


def _linearity_limits(group: Document) -> Iterator[str]:
    steps = [layer["linearity"] for layer in group["layers"][1:]]
    reason = next((step["reason"] for step in steps if step["reason"]), "")
    if reason:
        yield reason
    if any(step["optimistic"] for step in steps):
        yield (
            "fewer than ten tokens for each dimension: the held-out score is too low by that, "
            "the score on the tokens of the fit too high"
        )


def _divergence(
    document: Document, groups: Sequence[NamedGroup], estimator: str, key: str, title: str
) -> Section:
    rows: list[tuple[object, ...]] = []
    notes, floors = [], []
    for name, group in groups:
        if not group["layers"][0]["divergence"]:
            continue
        values = [
            next(d for d in layer["divergence"] if d["estimator"] == estimator)
            for layer in group["layers"]
        ]
        if any(value[key] is not None for value in values):
            rows.append((name, group["tokens"], *(share(value[key]) for value in values)))
        else:
            notes.append(f"{name}, {estimator}: {values[0]['reason']}")
        floors.append((name.endswith(UNTRAINED), [value["floor"] for value in values]))
    if rows and key == "jeffreys":  # the reference's halves, once for each network
        for is_untrained in (False, True):
            by_layer = zip(*(own for of, own in floors if of == is_untrained), strict=True)
            floor = [next((one for one in own if one is not None), None) for own in by_layer]
            if any(one is not None for one in floor):
                name = f"floor: halves of the reference{UNTRAINED if is_untrained else ''}"
                rows.append((name, "", *map(share, floor)))
    title = f"divergence from {document['reference']}: {title} (nats)"
    return _by_layer(document, title, ("group", "tokens"), rows, notes=notes)


def _differences(document: Document, everything: bool) -> Iterator[Section]:
    for pair in document["pairs"]:
        title = (
            f"{pair['first']} less {pair['second']} ({count(pair['shared_ids'], 'text')} in both)"
        )
        yield _difference(document, title, pair["measures"], everything)
    for contrast in document["contrasts"]:
        first = "trained" if contrast["condition"] == "untrained" else "as written"
        title = f"{contrast['group'] or 'all'}: {first} less {contrast['condition']}"
        yield _difference(document, title, contrast["measures"], everything)


def _difference(
    document: Document, title: str, measures: Sequence[Document], everything: bool
) -> Section:
    rows = []
    for measure in measures:
        uncentred = measure["measure"] == "anisotropy, uncentred"
        if everything or (measure["estimator"] in MAIN_ESTIMATORS and not uncentred):
            by_layer = {layer["layer"]: layer for layer in measure["layers"]}
            cells = [_less(by_layer.get(layer)) for layer in range(document["n_layers"])]
            rows.append((f"{measure['measure']} ({measure['estimator']})", *cells))
    title = f"{title}; 95 %, * omits 0"
    most = 12 if everything else DIFFERENCE_LAYERS
    return _by_layer(document, title, ("measure",), rows, most=most)


def _less(layer: Document | None) -> str:
    if layer is None:
        return "–"
    digits = 1 if abs(layer["difference"]) >= 1 else 3
    value = f"{layer['difference']:+.{digits}f}"
    if layer["low"] is None:
        return value
    sure = "*" if layer["low"] > 0 or layer["high"] < 0 else ""
    return f"{value}{sure} ({layer['low']:+.{digits}f}…{layer['high']:+.{digits}f})"


geometry = study(Geometry)
