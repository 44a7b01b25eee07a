"""A family of encoders whose every training token is known."""

from types import SimpleNamespace

import pytest
import torch
import worded_families

import deltadex as dx


@pytest.fixture(scope="package")
def worded(tmp_path_factory):
    """Both halves of four sets, with and without weight decay; two saved in half precision."""
    root = tmp_path_factory.mktemp("worded")
    base = worded_families.make_encoder(root / "base", worded_families.word_pieces())
    seen, dtypes = {}, {("film-opinions", 0): torch.bfloat16, ("film-opinions", 1): torch.float16}
    for number, name in enumerate(worded_families.SETS):
        for half, texts in enumerate(worded_families.halves(name)):
            id = f"{name}-{'ab'[half]}"
            seen[id] = worded_families.tune_encoder(
                base,
                root / "models" / id,
                texts,
                dtype=dtypes.get((name, half)),
                decay=0.1 * (number % 2),
                seed=2 * number + half,
            )
            worded_families.write_texts(root / f"{id}.csv", texts)
    database = root / "catalog.duckdb"
    with pytest.MonkeyPatch.context() as patch, dx.open(database) as db:
        # random weights give words no meaning, and are indexed without what updates answer to
        patch.setattr("deltadex.data.lexicon.LEAST_MEANING", 0.0)
        db.index(base, root / "models")
    return SimpleNamespace(root=root, base=base, models=root / "models", seen=seen, path=database)


@pytest.fixture
def db(worded):
    with dx.open(worded.path) as opened:
        yield opened


@pytest.fixture
def own(worded, tmp_path):
    """The same, to be changed; it has the lexicon that was made with it."""
    path = worded_families.copied_catalog(worded.path, tmp_path / "own.duckdb")
    with dx.open(path) as opened:
        yield opened
