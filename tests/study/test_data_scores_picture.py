import re

import numpy as np
import pytest

from deltadex.pictures import DataScores, draw_data_scores, save_picture
from deltadex.pictures.data_scores import MOST_MODELS


def make_scores(n_data=3, n_models=6, name="m", **changes):
    z = np.random.default_rng(0).normal(size=(n_data, n_models))
    z[np.arange(n_models) % n_data, np.arange(n_models)] += 8
    fields = {
        "base": "base",
        "data": tuple(f"set-{i}" for i in range(n_data)),
        "models": tuple(f"{name}{i}" for i in range(n_models)),
        "z": z,
        "standing": z > 6,
    }
    return DataScores(**(fields | changes))


def shown(picture):
    axes = picture.figure.axes[0]
    return (
        [text.get_text() for text in axes.get_yticklabels()],
        [text.get_text() for text in axes.get_xticklabels()],
        np.asarray(axes.images[0].get_array()),
    )


def test_every_cell_is_its_pair():
    scores = make_scores()

    models, data, cells = shown(draw_data_scores(scores))

    assert data == list(scores.data)
    assert sorted(models) == sorted(scores.models)
    for row, model in enumerate(models):
        assert cells[row].tolist() == scores.z[:, scores.models.index(model)].tolist()


def test_models_of_one_data_set_stand_together():
    scores = make_scores(n_models=30)

    _, _, cells = shown(draw_data_scores(scores))

    own = cells.argmax(axis=1)
    assert (np.diff(own) >= 0).all()


def test_a_large_family_shows_the_nearest_of_each_and_says_how_many():
    scores = make_scores(n_data=4, n_models=300)

    picture = draw_data_scores(scores)

    models, _, _ = shown(picture)
    assert len(models) == MOST_MODELS
    best = {scores.models[place] for place in scores.z.argmax(axis=1).tolist()}
    assert best <= set(models)
    caption = " ".join(t.get_text() for f in picture.sheet.subfigs for t in f.texts)
    assert f"{MOST_MODELS} of 300 models" in caption.replace("\n", " ")


@pytest.mark.parametrize("width", ["full", "column"])
@pytest.mark.parametrize("n_data", [1, 3, 20])
def test_only_cells_with_room_have_numbers(width, n_data):
    picture = draw_data_scores(make_scores(n_data=n_data, n_models=20), width)

    numbers = [t.get_text() for t in picture.figure.axes[0].texts]
    has_room = n_data <= (14 if width == "full" else 3)
    assert len(numbers) == (20 * n_data if has_room else 0)


def test_long_names_keep_both_ends():
    models, _, _ = shown(draw_data_scores(make_scores(name="a-very-long-name/" * 4), "column"))

    assert all(len(name) <= 26 and name[-1].isdigit() for name in models)


@pytest.mark.parametrize("ending", [".png", ".svg", ".html"])
def test_it_is_saved_with_the_same_bytes(tmp_path, ending):
    def draw():
        return draw_data_scores(make_scores())

    one, two = (save_picture(draw, tmp_path / f"{n}{ending}", title="t").read_bytes() for n in "ab")

    assert one == two
    if ending == ".html":
        assert len(re.findall(r"<title>m\d\nset-\d: z", one.decode())) == 2 * 18
