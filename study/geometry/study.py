"""The geometry of a network's states, layer by layer and group by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..texts import Text
from .anisotropy import Anisotropy, sampled_anisotropy, streamed_anisotropy
from .collect import Collected, GroupStates, collect
from .compare import Comparison
from .fertility import Tokenize, fertility
from .intrinsic_dimension import FEWEST_ROWS, intrinsic_dimension
from .moments import pooled
from .neighbours import distinct_rows
from .options import GeometryOptions
from .pairs import compare_scripts
from .report import GeometryReport, GroupGeometry, LayerGeometry

if TYPE_CHECKING:
    from ..network import TokenStates


def geometry_study(
    states: Iterable[TokenStates],
    texts: Sequence[Text],
    *,
    reference: str | None = None,
    options: GeometryOptions | None = None,
    tokenize: Tokenize | None = None,
    unknown: int | None = None,
) -> GeometryReport:
    """Intrinsic dimension, anisotropy, divergence from `reference`, fertility, script pairs.

    Peak, for G groups, L layers and width d: L·G·d·(8·d + 4·keep) bytes, 8·L·d² more with a
    reference, and of each parallel text 4·L·d bytes, `padded_texts` of each group whole; the
    8·d only with the method `gram`. Above 8 GiB it is refused.

    Args:
        states: Of `texts`, as `token_states` yields them; read once.
        reference: A group that the others are compared with, over texts of the same id.
        tokenize: For fertility.
        unknown: Id of the tokenizer's unknown token.

    Raises:
        StudyError: no such reference, no tokens, states not finite or too large.
    """
    options = options or GeometryOptions()
    found = collect(states, texts, reference, options)
    sample = options.sample or _common_sample(found)
    comparison = None if reference is None else Comparison(found, reference, options)
    cut = fertility(texts, tokenize, unknown=unknown) if tokenize is not None else {}
    groups = tuple(
        GroupGeometry(
            group=name,
            texts=len(found.index[name]),
            tokens=own.n_tokens,
            fertility=cut.get(name),
            layers=tuple(
                _layer(name, layer, found, comparison, sample, options)
                for layer in range(found.shape[0])
            ),
        )
        for name, own in found.by_group.items()
    )
    sentences = {} if comparison is None else comparison.sentences
    return GeometryReport(
        reference=reference,
        n_layers=found.shape[0],
        dim=found.shape[1],
        sample=sample,
        options=options,
        groups=groups,
        pairs=compare_scripts(groups, found.index, sentences, options),
    )


def _layer(
    name: str,
    layer: int,
    found: Collected,
    comparison: Comparison | None,
    sample: int | None,
    options: GeometryOptions,
) -> LayerGeometry:
    own = found.by_group[name]
    return LayerGeometry(
        layer=layer,
        tokens=own.n_tokens,
        intrinsic_dimension=intrinsic_dimension(
            own.kept.rows(layer),
            estimators=options.estimators,
            sample=sample,
            draws=options.draws,
            seed=options.seed,
        ),
        anisotropy=_anisotropy(own, found, layer, options),
        divergence=() if comparison is None else comparison.divergences(name, layer),
    )


def _common_sample(found: Collected) -> int | None:
    """Four fifths of the fewest distinct rows, among those that are enough; None if none are."""
    distinct = [
        len(distinct_rows(group.kept.rows(layer)))
        for group in found.by_group.values()
        for layer in range(found.shape[0])
    ]
    enough = [n for n in distinct if n >= FEWEST_ROWS]
    return max(FEWEST_ROWS, min(enough) * 4 // 5) if enough else None


def _anisotropy(
    own: GroupStates, found: Collected, layer: int, options: GeometryOptions
) -> Anisotropy:
    if options.method == "gram":
        return streamed_anisotropy(pooled(own.moments(layer, found.half)), own.sums[layer])
    return sampled_anisotropy(
        own.kept.rows(layer), own.sums[layer], method=options.method, seed=options.seed
    )
