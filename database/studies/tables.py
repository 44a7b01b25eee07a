"""What the calls of studies return: documents that are also tables, and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..tables import Document, Row, Table, html_table

if TYPE_CHECKING:
    from ...pictures import Picture, Width


LAW_FIELDS = ("alpha", "standard_error", "x_min", "distance", "n_tail", "p_value")
"""Of a spectrum's power law; empty in the row of a matrix that has none."""


class ProfileTable(Table):
    """Profiles of models, a row for each; `failed` lists models that have none."""

    columns = ("model", "base", "known")
    _key = "profiles"


class Study(Table):
    """A study's report, and the picture of it."""

    def __init__(self, document: Document, title: str, draw: Callable[[Width], Picture]) -> None:
        super().__init__(document)
        self._title, self._draw = title, draw

    def save_picture(self, path: str | Path, *, width: Width = "full") -> Path:
        """Draw the report into a .png, .svg or .html file; a page has a table of values, too.

        Args:
            width: `full` is 180 mm, `column` 85 mm; text has the same size on both.

        Raises:
            RequestError: another ending.
            StoreFull: the file cannot be written.
        """
        from ...pictures import save_picture

        target = Path(path)
        table = html_table(*self._cells(self._page_rows())) if target.suffix == ".html" else ""
        save_picture(lambda: self._draw(width), target, title=self._title, table=table)
        return target

    def _page_rows(self) -> Sequence[Row]:
        """The rows of the table below the picture in a page."""
        return self._rows()


class RankStudy(Study):
    """Ranks of an update, a row for each slot; the document has curves by role and depth."""

    _key = "slots"

    def _page_rows(self) -> Sequence[Row]:
        """A row for each curve, with its law and the rank at every layer."""
        rows = []
        for curve in self._document["curves"]:
            fit, best = curve["fit"], curve["fit"]["best"]
            parameters = best["parameters"] if best and fit["pattern"] else {}
            missed = (f"{m['layer']} ({m['standard_errors']:+.1f} s.e.)" for m in fit["misses"])
            rows.append(
                {name: curve[name] for name in ("stack", "role", "theta")}
                | {
                    "law": fit["verdict"],
                    "parameters": ", ".join(map(_parameter, parameters, parameters.values())),
                    "R²": best["r_squared"] if parameters else None,
                    "p": fit["p_value"],
                    "misses layer": ", ".join(missed),
                }
                | {f"layer {p['layer']}": _rank(p) for p in curve["points"]}
            )
        return rows


class SpectrumStudy(Study):
    """Eigenvalues of updates and weights, a row for each matrix; the document has curves."""

    columns = ("subject", "stack", "layer", "role", "verdict", "alpha")
    _key = "matrices"

    def _rows(self) -> Sequence[Row]:
        return [
            {key: value for key, value in matrix.items() if key not in ("curve", "power_law")}
            | (matrix["power_law"] or dict.fromkeys(LAW_FIELDS))
            for matrix in self._document["matrices"]
        ]


def _parameter(name: str, parameter: Document) -> str:
    error = parameter["standard_error"]
    return f"{name} = {parameter['value']:.3g}" + ("" if error is None else f" ± {error:.2g}")


def _rank(point: Document) -> str:
    error = point["standard_error"]
    shown = f"{point['rank']:.4g}" + ("" if error is None else f" ± {error:.2g}")
    return shown if point["valid"] else f"({shown})"


class ComponentStudy(Study):
    """What hidden states are made of: `stack`, `layer`, and the importance of each term, 0…1."""

    def _rows(self) -> Sequence[Row]:
        return [
            {"stack": name, "layer": layer, **dict(zip(stack["terms"], importance, strict=True))}
            for name, stack in self._document["stacks"].items()
            for layer, importance in zip(stack["layers"], stack["importance"], strict=True)
        ]


class GeometryStudy(Study):
    """The shape of hidden states, a row for each group of texts."""

    columns = ("group", "tokens")
    _key = "groups"

    def _page_rows(self) -> Sequence[Row]:
        """A row for each group and layer, the untrained network's after the studied one's."""
        return [
            _layer_row(group, layer, network)
            for network, key in (("studied", "groups"), ("untrained", "untrained"))
            for group in self._document[key]
            for layer in group["layers"]
        ]

    def _cells(self, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
        """Of a page's rows every column: that of a divergence is not in the reference's row."""
        if not rows or "layer" not in rows[0]:
            return super()._cells(rows)
        page = Table({})
        page.columns = tuple(dict.fromkeys(name for row in rows for name in row))
        return page._cells(rows)


def _layer_row(group: Document, layer: Document, network: str) -> Row:
    """One group in one layer: every measure that a picture has, and why a dimension is missing."""
    row = {"network": network, "group": group["group"] or "all", "layer": layer["layer"]}
    for estimate in layer["intrinsic_dimension"]:
        name = estimate["estimator"]
        row[name] = estimate["reason"] or estimate["dimension"]
        row[f"{name} ±"] = estimate["standard_error"]
    cloud, step = layer["anisotropy"], layer["linearity"] or {}
    row |= {key: cloud[key] for key in ("centred", "uncentred", "mean_cosine")}
    row |= {f"linearity, {key}": step.get(f"held_out_{key}") for key in ("stream", "contribution")}
    for divergence in layer["divergence"]:
        of_gauss = divergence["estimator"] == "gauss"
        row[divergence["estimator"]] = divergence["jeffreys" if of_gauss else "to_reference"]
    return row


class CkaStudy(Study):
    """CKA by layer: `layer`, `against_layer`, `debiased` with `standard_error`, `cka` (biased)."""

    columns = ("layer", "against_layer", "debiased", "standard_error", "cka")
    _key = "layers"


class LogitLensStudy(Study):
    """What each layer would predict with the model's own head, a row for each layer.

    `agreement` (share of tokens whose top token is the last layer's), `bits_per_token`,
    `bits_per_character`, `kl` (bits), `decided` (share of tokens that no later layer changes).
    """

    columns = ("layer", "agreement", "bits_per_token", "bits_per_character", "kl", "decided")
    _key = "layers"


class LayerStudy(Study):
    """What tells layers apart: a row for the layer classifier and for every control of it."""

    columns = ("title", "accuracy", "standard_error", "converged")
    _key = "controls"


class AblationStudy(Study):
    """What subsets of terms predict: a row for each measure and subset."""

    columns = ("measure", "subset", "value", "sd", "low", "high", "difference", "items")

    def _rows(self) -> Sequence[Row]:
        return [
            {"measure": measure["key"], "score": measure["score"], "items": measure["n_items"]}
            | {key: value for key, value in score.items() if key != "terms"}
            for measure in self._document["measures"]
            for score in measure["subsets"]
        ]
