"""What would make words say with certainty what is wrong."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from worded_families import SETS

import deltadex as dx
from deltadex.errors import RequestError
from deltadex.records import Footprint
from deltadex.search.footprints import FileTokens
from deltadex.search.vocabulary import Vocabulary

ID = f"{SETS[0]}-a"
EMBEDDING = "bert.embeddings.word_embeddings.weight"


def characters():
    """A vocabulary of single characters, as of Chinese encoders."""
    rows = {"[UNK]": 0} | {chr(0x4E00 + n): n + 1 for n in range(5000)}
    tokenizer = Tokenizer(models.WordPiece(rows, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return Vocabulary(tokenizer.to_str().encode())


def chinese(rng, n_texts):
    chances = 1 / (np.arange(5000) + 2.7)
    drawn = rng.choice(5000, (n_texts, 20), p=chances / chances.sum())
    return ["".join(chr(0x4E00 + 17 * int(n) % 5000) for n in row) for row in drawn]


def footprint(vocabulary, texts):
    tokens = np.flatnonzero(vocabulary.counts(texts)).astype(np.uint32)
    strengths = np.full(len(tokens), 100, np.uint8)
    return Footprint(kind="exact", vocabulary=len(vocabulary), tokens=tokens, strengths=strengths)


@pytest.mark.parametrize("n_texts", [40, 100, 1000])
def test_a_file_of_every_character_proves_nothing_of_other_text(n_texts):
    vocabulary, rng = characters(), np.random.default_rng(0)
    file = FileTokens.of(vocabulary, chinese(rng, 20_000))

    match = file.match(footprint(vocabulary, chinese(rng, n_texts)))

    assert match.missing <= 1
    assert not match.is_trained_on
    assert match.verdict().startswith("cannot tell")


def test_what_is_known_of_a_part_of_the_vocabulary_proves_no_file():
    vocabulary, texts = characters(), chinese(np.random.default_rng(0), 400)
    file, seen = FileTokens.of(vocabulary, texts), footprint(vocabulary, texts)

    match = file.match(replace(seen, share=0.01))

    assert file.match(seen).is_trained_on
    assert not match.is_trained_on
    assert match.verdict().startswith("cannot tell: it is known of 1.0% of the vocabulary")


def test_marks_of_spaces_that_a_normalizer_makes_are_no_letters():
    rows = {"<unk>": 0, "▁": 1, "h": 2, "i": 3, "hi": 4, "▁hi": 5, "你好": 6}
    tokenizer = Tokenizer(models.BPE(rows, [("h", "i"), ("▁", "hi")], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])

    assert Vocabulary(tokenizer.to_str().encode()).words == {"hi": 5, "你好": 6}


@pytest.mark.parametrize(
    "content",
    [
        '{"model": {"vocab": {"a": "x"}}}',
        '{"model": {"vocab": {"a": -5}}}',
        '{"model": {"vocab": [[]]}}',
        '{"model": {"vocab": {"a": 0}}, "added_tokens": 5}',
        '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "a"}]}',
        '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 99999999999, "content": "a"}]}',
    ],
)
def test_a_tokenizer_of_another_form_is_refused_and_takes_no_memory(content):
    with pytest.raises(RequestError, match="its tokenizer cannot be read"):
        Vocabulary(content.encode())


def test_one_unreadable_tokenizer_leaves_out_its_model_alone(worded, tmp_path):
    for id, files in {
        "broken": {"tokenizer.json": '{"model": {"vocab": {"a": "x"}}}'},
        "unbuilt": {"vocab.txt": "only\nwords\n"},
        "plain": {},
    }.items():
        shutil.copytree(worded.models / ID, tmp_path / "models" / id)
        for name, content in files.items():
            (tmp_path / "models" / id / name).write_text(content, "utf-8")
    with dx.open(None) as own:
        assert not own.index(worded.base, tmp_path / "models").to_json()["failed"]
        found = own.data.find_models(worded.root / f"{ID}.csv", quick=True)

        assert {row["model"] for row in found} == {"plain", "unbuilt"}
        assert "cannot be read" in found.to_json()["left_out"][0]["reason"]
        assert "no tokenizer can be made" in own.words("unbuilt").to_json()["note"]


@pytest.mark.parametrize("value", [0.0, float("nan")])
@pytest.mark.parametrize("share", [0.2, 1.0])
def test_rows_that_were_cleared_or_broken_are_neither_trained_nor_frozen(
    worded, tmp_path, value, share
):
    folder = tmp_path / "cleared"
    shutil.copytree(worded.models / f"{SETS[1]}-a", folder)  # of a decay of .1
    shutil.copy(worded.models / f"{SETS[3]}-a" / "model.safetensors", folder)
    weights = load_file(folder / "model.safetensors")
    n_cleared = int(share * len(weights[EMBEDDING]))
    weights[EMBEDDING][-n_cleared:] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    seen = worded.seen[f"{SETS[3]}-a"] | {0}

    with dx.open(None) as own:
        own.add(folder, base=str(worded.base))
        (row,) = own._catalog.footprints.all() or [None]
        document = own.words("cleared").to_json()

    if share == 1:
        assert document["kind"] == "none"
        assert "rows" in document["note"]
    else:
        assert document["kind"] == "exact"
        assert set(row.footprint.tokens.tolist()) <= seen
        assert document["touched"] > 50


def test_a_row_next_to_nothing_in_the_base_was_not_cleared(worded, tmp_path):
    for source, values in ((worded.base, (1e-35, 1)), (worded.models / ID, (0, float("nan")))):
        file = shutil.copytree(source, tmp_path / source.name) / "model.safetensors"
        weights = load_file(file)
        weights[EMBEDDING][7:9] = torch.tensor(values)[:, None]
        save_file(weights, file, metadata={"format": "pt"})
    with dx.open(None) as own:
        own.add(tmp_path / ID, base=str(tmp_path / worded.base.name))

        assert own.words(ID).to_json()["note"] == "1 row with NaN or infinity"


def test_words_against_a_model_of_another_base(worded, tmp_path):
    base = shutil.copytree(worded.base, tmp_path / "other-base")
    with dx.open(None) as own:
        own.add(worded.models / ID, base=str(worded.base))
        own.add(worded.models / f"{SETS[1]}-a", base=str(base))

        document = own.words(ID, against=f"{SETS[1]}-a").to_json()

    assert document["seen"]
    assert document["only_other"]
