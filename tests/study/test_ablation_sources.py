"""Words with labels: pseudo-words, files of senses and of tags, shapes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_language_model import TEXTS, masked_network

from deltadex.errors import StudyError
from deltadex.study.ablation.annotated_words import (
    pseudo_words,
    read_senses,
    read_tags,
    shape,
    word_shapes,
)
from deltadex.study.ablation.subset_study import collect_terms, encode_texts, items_of_words
from deltadex.study.components.decomposition import branch_constants, decompose
from deltadex.study.network.hidden_states import padded


def test_a_pseudo_word_stands_where_one_of_its_words_stood():
    words = pseudo_words(TEXTS, most_items=10_000, seed=0)

    assert len(words.labels) >= 2 * 12
    for lemma in set(words.lemmas):
        senses = [s for s, own in zip(words.labels, words.lemmas, strict=True) if own == lemma]
        first, second = lemma.split("-")
        assert senses.count(first) == senses.count(second) >= 12
    for fed, (start, end), sense, lemma, origin in zip(
        words.texts, words.spans, words.labels, words.lemmas, words.origin, strict=True
    ):
        assert fed[start:end] == lemma
        assert fed[:start] + sense + fed[end:] == TEXTS[origin]
        rest = set(re.findall(r"\w+", fed[:start] + fed[end:]))
        assert not rest & set(lemma.split("-"))
    assert len(pseudo_words(TEXTS, most_items=60, seed=0).labels) <= 60


def test_the_seed_decides_which_texts_are_taken(monkeypatch):
    monkeypatch.setattr("deltadex.study.ablation.annotated_words.MOST_TEXTS", 12)
    first, again, other = (pseudo_words(TEXTS, most_items=999, seed=s).texts for s in (0, 0, 1))

    assert first == again != other


def test_texts_without_common_words_are_refused():
    with pytest.raises(StudyError, match="no two words stand in 12 texts"):
        pseudo_words(["a b", "c d"] * 20, most_items=100, seed=0)


@given(
    words=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=8),
    most=st.integers(1, 30),
)
@settings(max_examples=30, deadline=None)
def test_drawn_words_keep_their_text_and_label(words, most):
    texts = [f"{word} {n} X" for n, word in enumerate(words)]
    whole = word_shapes(texts)

    drawn = whole.drawn(most, 0)

    assert len(drawn.labels) <= max(most, 0) or drawn is whole
    for text, (start, end), label, origin in zip(
        drawn.text, drawn.spans, drawn.labels, drawn.origin, strict=True
    ):
        assert drawn.texts[text] == texts[origin]
        assert shape(texts[origin][start:end]) == label


def test_tokens_belong_to_the_word_that_they_lie_in():
    network = masked_network()
    words = word_shapes(["Cat 42, SUN!"])
    (encoded,) = encode_texts(network, words.texts, 128)

    (items,) = items_of_words([encoded], words.text, words.spans)

    pieces = network.tokenizer.convert_ids_to_tokens(encoded.ids)
    assert pieces == ["[CLS]", "c", "##a", "##t", "[UNK]", ",", "s", "##u", "##n", "!", "[SEP]"]
    assert items.tolist() == [-1, 0, 0, 0, 1, 2, 3, 3, 3, 4, -1]
    assert words.labels == ("capital", "number", "sign", "upper", "sign")


@pytest.mark.parametrize("batch_size", [1, 4])
def test_terms_of_a_word_are_the_sums_of_its_pieces_in_batches_of_any_size(batch_size):
    network = masked_network()
    words = word_shapes(TEXTS[:5])
    encoded = encode_texts(network, words.texts, 8)
    items = items_of_words(encoded, words.text, words.spans)

    found, seen, _ = collect_terms(
        network,
        encoded,
        items,
        len(words.labels),
        batch_size=batch_size,
    )

    stack = network.stacks[0]
    constants = branch_constants(network, stack)
    for text, numbers in zip(encoded, items, strict=True):
        batch = padded(network, [text.ids.tolist()], [text.counted])
        terms = decompose(network, stack, batch, constants)[-1].terms[:, 0].numpy()
        for word in set(numbers[numbers >= 0].tolist()):
            expected = terms[:, numbers == word].sum(axis=1)
            np.testing.assert_allclose(found[:, word], expected, rtol=1e-4, atol=1e-5)
    read = set(np.concatenate(items).tolist()) - {-1}
    assert np.flatnonzero(seen).tolist() == sorted(read)
    assert len(read) < len(words.labels)  # texts are cut behind eight tokens
    assert not found[:, ~seen].any()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *(("a1", "number"), ("…", "sign"), ("I", "capital"), ("USA", "upper"), ("été", "lower")),
        *(("iPhone", "other"), ("東京", "other")),
    ],
)
def test_shapes(word, expected):
    assert shape(word) == expected


def test_senses_are_read_from_json_lines_and_csv(tmp_path):
    (tmp_path / "s.jsonl").write_text(
        '{"text": "a bank of sand", "lemma": "bank", "sense": "1", "start": 2, "end": 6}\n'
        '{"sentence": "a bank of sand", "lemma": "sand", "sense": "x", "word": 3}\n'
        '{"text": "a bank", "lemma": "bank", "sense": "2", "word": 7}\n'
        '{"text": "a bank", "lemma": "bank", "sense": "2"}\n'
        "no json\n"
        '{"text": "a bank", "lemma": "bank", "word": 1}\n'
    )
    (tmp_path / "s.csv").write_text(
        "sentence,word,lemma,sense\na bank of sand,1,bank,1\na bank of sand,3,sand,x\n"
    )

    lines, table = read_senses(tmp_path / "s.jsonl"), read_senses(tmp_path / "s.csv")

    for words in (lines, table):
        assert words.texts == ("a bank of sand",)
        assert words.spans == ((2, 6), (10, 14))
        assert (words.lemmas, words.labels) == (("bank", "sand"), ("1", "x"))
    assert [line.split(": ")[1] for line in lines.broken] == [
        "its word is not in its text",
        "needs start and end, or word",
        "is not a row with a text",
        "no sense",
    ]
    assert lines.digest != table.digest


def test_tags_are_read_from_columns(tmp_path):
    (tmp_path / "t.conll").write_text(
        "-DOCSTART- -X- O O\n\nSun NNP I-NP B-LOC\nshines VBZ I-VP O\n\nalone\nSun B-LOC\n\n"
        "Sun\tB-LOC\n"
    )

    words = read_tags(tmp_path / "t.conll")

    assert words.texts == ("Sun shines", "Sun", "Sun")
    assert words.labels == ("B-LOC", "O", "B-LOC", "B-LOC")
    assert words.spans == ((0, 3), (4, 10), (0, 3), (0, 3))
    assert words.broken == ("t.conll:6: not a word and its tag",)
    np.testing.assert_array_equal(words.origin, [0, 0, 1, 1])


@pytest.mark.parametrize("read", [read_senses, read_tags])
def test_a_file_without_words_is_refused(read, tmp_path):
    (tmp_path / "x.txt").write_text("\nlonely\n")

    with pytest.raises(StudyError, match=r"x\.txt"):
        read(tmp_path / "x.txt")
    with pytest.raises(StudyError, match="No such file"):
        read(tmp_path / "none.txt")


def test_senses_may_be_separated_by_semicolons_and_are_named_where_not_unicode(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes(
        b"Text;lemma;sense;word\na bank\xc2\x85b;bank;river;1\ncaf\xe9 bank;bank;money;1\nx;bank\n"
    )

    words = read_senses(path)

    assert words.texts == ("a bank\x85b",)
    assert words.broken == ("s.csv:2: is not UTF-8", "s.csv:3: is not a row with a text")
