"""The updates of a family's models side by side."""

from dataclasses import replace

import numpy as np
import pytest
from catalogs import make_catalog, make_indexed

from deltadex.errors import StoreDamaged
from deltadex.records import LinearSketch


def _sketched(id, number, layers):
    model = make_indexed(id, np.arange(1, 5))
    sketch = LinearSketch(
        recipe=model.fingerprints[0].recipe.id,
        pooled=np.full(1024, number, np.float32),
        layers={("encoder", layer): np.full(256, number + layer, np.float32) for layer in layers},
    )
    return replace(model, linear=sketch)


def test_every_model_has_its_sketches_in_its_own_row(tmp_path):
    plain = make_indexed("plain", np.arange(1, 5))
    models = [_sketched("a", 1.0, (0, 2)), plain, _sketched("b", 5.0, (1, 2))]
    with make_catalog(tmp_path / "x.duckdb", *models) as catalog:
        view = catalog.family("base", plain.fingerprints[0].recipe)
        updates, last = view.updates(), view.updates(view.keys[2:])

    assert updates.layer_names == (("encoder", 0), ("encoder", 1), ("encoder", 2))
    assert updates.sketched.tolist() == [True, False, True]
    assert updates.pooled[:, 7].tolist() == [1.0, 0.0, 5.0]
    assert updates.layers[:, :, 7].tolist() == [[1, 0, 3], [0, 0, 0], [0, 6, 7]]
    assert updates.fro_norm.tolist() == [[1.0]] * 3
    assert np.isnan(updates.zero_share).all()
    assert last.pooled.tolist() == updates.pooled[2:].tolist()


def test_a_sketch_that_is_not_finite_is_damage(tmp_path):
    model = _sketched("a", np.nan, (0,))
    with make_catalog(tmp_path / "x.duckdb", model) as catalog:
        view = catalog.family("base", model.fingerprints[0].recipe)
        with pytest.raises(StoreDamaged, match="linear sketches"):
            view.updates()
