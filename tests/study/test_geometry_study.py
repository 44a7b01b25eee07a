"""The geometry study over made-up states: against the single functions, and its refusals."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from deltadex.errors import StudyError
from deltadex.study.geometry import group_states, moments
from deltadex.study.geometry.geometry_report import geometry_study
from deltadex.study.geometry.group_states import GeometryOptions, Reservoir, fertility, scrambled
from deltadex.study.geometry.intrinsic_dimension import assign_blocks, intrinsic_dimension
from deltadex.study.geometry.picture import draw_geometry
from deltadex.study.network.hidden_states import TokenStates
from deltadex.study.texts import Text

LAYERS, DIM = 3, 6
SMALL = GeometryOptions(keep=2000, axes=2, resamples=50, seed=0)
GROUPS = ("eng_Latn", "srp_Cyrl", "srp_Latn")


def make_texts(groups=GROUPS, n=20):
    """Parallel texts, the groups one after the other."""
    return [Text(f"{group} text {i}", group, str(i)) for group in groups for i in range(n)]


def make_hidden(texts, *, tokens=16, seed=0):
    """{text number: (layers, tokens, dim)}: each group with its own mean and spread."""
    rng = np.random.default_rng(seed)
    groups = list(dict.fromkeys(text.group for text in texts))
    states = {}
    for number, text in enumerate(texts):
        which = groups.index(text.group)
        n = tokens + number % 3
        rows = rng.standard_normal((LAYERS, n, DIM)) * (1 + 0.5 * which)
        rows[..., which % DIM] += np.arange(LAYERS)[:, None]
        states[number] = rows.astype(np.float32)
    return states


def batches(hidden, size=7):
    """The texts' states, some texts at a time."""
    numbers = sorted(hidden)
    for start in range(0, len(numbers), size):
        some = numbers[start : start + size]
        lengths = [hidden[number].shape[1] for number in some]
        yield TokenStates(
            hidden=np.concatenate([hidden[number] for number in some], axis=1),
            text=np.repeat(some, lengths),
        )


TEXTS = make_texts()
HIDDEN = make_hidden(TEXTS)
"""Nobody may change them."""


def read(rows):
    """Documents whose keys are attributes."""
    return json.loads(json.dumps(rows), object_hook=lambda row: SimpleNamespace(**row))


def rows_of(group, layer):
    own = [number for number, text in enumerate(TEXTS) if text.group == group]
    return np.concatenate([HIDDEN[number][layer] for number in own])


def study(texts=TEXTS, *, hidden=None, size=7, reference="eng_Latn", options=SMALL, **more):
    states = batches(hidden or make_hidden(texts), size)
    return geometry_study(states, texts, reference=reference, options=options, **more)


@pytest.fixture(scope="module")
def report():
    return study(tokenize=lambda text: [ord(char) for char in text], unknown=ord("t"))


def test_numbers_are_those_of_the_functions_over_all_tokens(report):
    for group in report.groups:
        own = [number for number, text in enumerate(TEXTS) if text.group == group.group]
        blocks = assign_blocks([TEXTS[number].id for number in own])
        blocks = np.repeat(blocks, [HIDDEN[number].shape[1] for number in own])
        for layer in group.layers:
            rows = rows_of(group.group, layer.layer)
            dimension = intrinsic_dimension(rows, sample=report.sample, blocks=blocks)
            sums = moments.RowSums(DIM)
            sums.update(rows)
            exact = moments.anisotropy(moments.Moments.of(rows), sums)
            assert layer.tokens == group.tokens == len(rows)
            assert layer.intrinsic_dimension == dimension
            for part in ("centred", "uncentred", "mean_cosine"):
                assert getattr(layer.anisotropy, part) == pytest.approx(getattr(exact, part))


def test_gauss_is_over_all_tokens_with_the_floor_of_the_references_halves(report):
    ours, theirs = (moments.Moments.of(rows_of(group, 1)) for group in ("srp_Cyrl", "eng_Latn"))

    found = report.groups[1].layers[1].divergence_by("gauss")

    halves = [
        moments.Moments.of(np.concatenate([HIDDEN[number][1] for number in range(part, 20, 2)]))
        for part in (0, 1)
    ]
    assert found.jeffreys == pytest.approx(
        moments.gaussian_divergence(ours, theirs, axes=2).jeffreys
    )
    assert found.floor == pytest.approx(moments.gaussian_floor(halves, axes=2))
    compared = [bool(group.layers[0].divergence) for group in report.groups]
    assert compared == [False, True, True]  # the reference is not, with itself


def test_softmax_divergences_are_of_parallel_texts_divided_by_the_references_size(report):
    scale = np.sqrt(np.mean(rows_of("eng_Latn", 2).astype(np.float64) ** 2))
    means = [HIDDEN[number][2].astype(np.float64).mean(axis=0) / scale for number in range(40)]
    pairs = [(softmax(means[20 + i]), softmax(means[i])) for i in range(20)]

    found = report.groups[1].layers[2].divergence_by("softmax-mean")

    assert found.scale == pytest.approx(scale)
    assert found.sentences == 20
    assert found.to_reference == pytest.approx(np.mean([entropy(p, q) for p, q in pairs]))
    assert found.from_reference == pytest.approx(np.mean([entropy(q, p) for p, q in pairs]))


def test_the_untrained_network_is_beside_the_same_groups_with_contrasts():
    texts = [*make_texts(GROUPS[:1]), *scrambled(make_texts(GROUPS[:1]), 0)]
    hidden, fresh = make_hidden(texts), make_hidden(texts, seed=1)

    both = geometry_study(batches(hidden), texts, untrained=batches(fresh), options=SMALL)
    alone = study(texts, hidden=fresh, reference=None)

    assert [group.group for group in both.untrained] == ["eng_Latn", "eng_Latn, scrambled"]
    contrasts = read(both.contrasts)
    wanted = [("untrained", "eng_Latn"), ("scrambled", "eng_Latn")]
    assert [(c.condition, c.group) for c in contrasts] == wanted
    assert both.pairs == ()
    for group, same in zip(both.untrained, alone.groups, strict=True):
        for layer, again in zip(group.layers, same.layers, strict=True):
            assert layer.anisotropy == again.anisotropy
            assert layer.linearity == again.linearity
    contrast = {(m.measure, m.estimator): m for m in contrasts[0].measures}
    for layer in contrast["anisotropy, centred", "gram"].layers:
        ours, theirs = both.groups[0].layers[layer.layer], both.untrained[0].layers[layer.layer]
        assert layer.difference == pytest.approx(
            ours.anisotropy.centred - theirs.anisotropy.centred
        )
        assert layer.low is None


def test_one_text_has_no_error_and_says_so():
    texts = [Text("long", "", "0")]
    rows = np.random.default_rng(0).standard_normal((LAYERS, 400, DIM)).astype(np.float32)

    (group,) = study(texts, hidden={0: rows}, reference=None).groups

    assert group.notes == (
        "one text: its tokens depend on each other; no error and no held-out score",
    )
    assert group.layers[1].intrinsic_dimension[0].dimension is not None
    assert group.layers[1].intrinsic_dimension[0].standard_error is None
    assert group.layers[1].linearity.stream is not None
    assert group.layers[1].linearity.held_out_stream is None


def test_the_kept_tokens_stand_for_all_where_moments_would_take_too_much(report, monkeypatch):
    monkeypatch.setattr(group_states, "MOST_BYTES", 65_000)

    kept = study(options=GeometryOptions(axes=2, keep=250, seed=0))

    layer, whole = kept.groups[0].layers[1], report.groups[0].layers[1]
    assert (layer.anisotropy.rows, kept.groups[0].tokens > 250) == (250, True)
    assert layer.anisotropy.centred == pytest.approx(whole.anisotropy.centred, rel=0.2)
    assert layer.anisotropy.mean_cosine == pytest.approx(whole.anisotropy.mean_cosine)
    gauss = kept.groups[2].layers[1].divergence_by("gauss")
    assert gauss.tokens == (250, 250)
    assert gauss.floor is not None


WITHOUT_REFERENCE = {
    *(("intrinsic dimension", name) for name in ("facco", "mle")),
    *((f"anisotropy, {which}", "gram") for which in ("centred", "uncentred")),
    ("mean cosine", "exact"),
    *((f"linearity, {which}", "least squares") for which in ("stream", "contribution")),
}


def test_two_scripts_are_paired_latin_first_with_fertility_beside(report):
    (pair,) = read(report.pairs)

    assert (pair.language, pair.first, pair.second) == ("srp", "srp_Latn", "srp_Cyrl")
    assert pair.shared_ids == 20
    named = {(m.measure, m.estimator): m for m in pair.measures}
    to_reference = {("KL to reference", "gauss"), ("KL to reference", "softmax-mean")}
    assert set(named) == WITHOUT_REFERENCE | to_reference
    by_sentence = named["KL to reference", "softmax-mean"]
    latin, cyrillic = report.groups[2].layers, report.groups[1].layers
    for layer in by_sentence.layers:
        first = latin[layer.layer].divergence_by("softmax-mean").to_reference
        second = cyrillic[layer.layer].divergence_by("softmax-mean").to_reference
        assert layer.difference == pytest.approx(first - second)
        assert layer.low < layer.difference < layer.high
    assert by_sentence.sentences == 20
    dimension = named["intrinsic dimension", "facco"].layers
    assert all(layer.low < layer.difference < layer.high for layer in dimension)
    assert all(layer.low is None for layer in named["linearity, stream", "least squares"].layers)


def test_few_tokens_and_foreign_ids_are_reasons_not_numbers():
    texts = [*TEXTS, *(Text("few", "few_Latn", f"x{i}") for i in range(3))]

    few = study(texts).groups[-1].layers[0]

    assert [d.dimension for d in few.intrinsic_dimension] == [None] * 3
    assert "distinct rows; an estimate needs 100" in few.intrinsic_dimension[0].reason
    assert few.anisotropy.centred is not None
    reasons = {d.estimator: d.reason for d in few.divergence}
    assert "no text shares its id" in reasons["softmax-mean"]
    assert "2 axes need 200 a side" in reasons["gauss"]


def test_groups_without_tokens_and_references_of_zeros_have_no_numbers():
    texts = make_texts(groups=GROUPS[:2])
    hidden = make_hidden(texts)
    zeros = {n: rows * np.float32([[[n >= 20]], [[1]], [[1]]]) for n, rows in hidden.items()}

    group = study(texts, hidden={n: rows for n, rows in hidden.items() if n < 20}).groups[1]
    found = study(texts, hidden=zeros).groups[1].layers[0]

    assert (group.tokens, group.texts) == (0, 20)
    assert group.layers[0].anisotropy.centred is None
    assert group.layers[0].divergence_by("softmax-mean").to_reference is None
    assert {d.reason for d in found.divergence} == {"the reference's states are all zero"}


def test_fertility_by_words_characters_and_unknown_tokens():
    texts = [
        Text("one two three", "eng_Latn", "0"),
        Text("four", "eng_Latn", "1"),
        Text("我 喜欢读书。", "zho_Hans", "0"),
        Text("", "empty", "0"),
    ]

    found = fertility(texts, lambda text: [ord(c) for c in text if c != " "], unknown=ord("o"))

    english, chinese, empty = read(list(found.values()))
    assert (english.texts, english.tokens, english.tokens_per_word) == (2, 15, 3.75)
    assert (english.tokens_per_character, english.unknown_share) == (1.0, 3 / 15)
    assert (chinese.tokens_per_word, chinese.tokens_per_character) == (None, 1.0)
    assert (empty.tokens_per_word, empty.tokens_per_character, empty.unknown_share) == (None,) * 3
    assert fertility(texts, lambda text: [1])["eng_Latn"]["unknown_share"] is None


def test_scrambled_texts_have_the_same_words_in_another_order():
    texts = [
        Text("the quick brown fox jumps over it", "eng_Latn", "1"),
        Text("我喜欢读书", "zho_Hans", "1"),
        Text("alone", "eng_Latn", "2"),
    ]

    found = scrambled(texts, 0)

    for text, before in zip(found, texts, strict=True):
        assert (text.group, text.id) == (f"{before.group}, scrambled", before.id)
        assert (text.text == before.text) == (before.text == "alone")
    assert sorted(found[0].text.split()) == sorted(texts[0].text.split())
    assert sorted(found[1].text) == sorted(texts[1].text)


def test_the_reservoir_keeps_every_token_equally_often():
    counts = np.zeros(60)
    for seed in range(2000):
        reservoir = Reservoir(1, 15, 1, [seed])
        for some in np.array_split(np.arange(60), 4):
            reservoir.update(np.zeros((1, len(some), 1), np.float32), some)
        counts[reservoir.texts()] += 1

    # Each is Binomial(2000, ¼): sd 19.4; five of them for the worst of 60.
    assert np.abs(counts - 500).max() < 97


def test_references_and_states_that_cannot_be_studied_are_refused(monkeypatch):
    broken = HIDDEN | {45: HIDDEN[45].copy()}
    broken[45][2, 3, 1] = np.nan

    with pytest.raises(StudyError, match=r"reference group 'fra_Latn'; .*'srp_Cyrl'"):
        study(reference="fra_Latn")
    with pytest.raises(StudyError, match="the texts have no column `group`"):
        geometry_study(iter(()), make_texts([""]), reference="eng_Latn", options=SMALL)
    line = "hidden state 2 holds NaN or infinity on texts of 'srp_Latn'"
    with pytest.raises(StudyError, match=line):
        study(hidden=broken)
    monkeypatch.setattr(group_states, "MOST_BYTES", 10_000)
    line = r"3 groups of 3 layers × 6 .* or lower --keep-tokens"
    with pytest.raises(StudyError, match=line):
        study()


def test_equal_texts_are_not_held_out_from_each_other():
    report = study([replace(text, text="the same words") for text in TEXTS])

    steps = [layer.linearity for group in report.groups for layer in group.layers[1:]]
    assert all(step.stream is not None and step.held_out_stream is None for step in steps)


def test_the_picture_has_every_estimator_and_the_reports_numbers(report):
    picture = draw_geometry(report, "column")

    panels = {axes.get_title(): axes for axes in picture.sheet.axes}
    assert list(panels) == [
        *("TwoNN: facco", "TwoNN: mle", "TwoNN: low-fifth"),
        *("Anisotropy", "Mean cosine", "Linearity"),
        *("Divergence, Gauss", "Divergence, softmax"),
    ]
    assert [text.get_text() for text in panels["TwoNN: low-fifth"].texts] == ["too few tokens"]
    labels = [label for *_, label in picture.places()]
    cosine = report.groups[0].layers[0].anisotropy.mean_cosine
    assert f"eng_Latn, hidden state 0\nMean cosine {cosine:.3g}" in labels
