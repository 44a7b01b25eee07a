"""The order of models of several bases."""

import numpy as np

from deltadex.search.across import ranked_across
from deltadex.search.neighbours import Near


def make_model(model, probability, z=0.0, base="b"):
    return Near(
        rank=0,
        model=model,
        base=base,
        probability=probability,
        verdict="no model stands out",
        z=z,
        fdr=None,
        cosine=0.0,
        score=0.0,
        dataset=None,
        author=None,
        run=None,
    )


def test_bases_are_ranked_together_and_the_rate_never_falls():
    found = [
        make_model("small", None, z=9.0, base="c"),
        make_model("second", 0.5),
        make_model("first", 0.9, base="a"),
        make_model("last", 0.45),
    ]

    ranked = ranked_across(found, 4)

    assert [model.model for model in ranked] == ["first", "second", "last", "small"]
    assert [model.rank for model in ranked] == [1, 2, 3, 4]
    np.testing.assert_allclose([model.fdr for model in ranked[:3]], [0.1, 0.3, 1.15 / 3])
    assert ranked[3].fdr is None
