"""What updates answer to, and models by plain text, beside transformers' own states."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from running import document, run
from transformers import BertForSequenceClassification, BertModel, PreTrainedTokenizerFast
from worded_families import SETS, copied_catalog, footprint_of, texts_of, train

import deltadex as dx
from deltadex.data import lexicon
from deltadex.errors import RequestError
from deltadex.indexer.base import Cancelled, resolve_base
from deltadex.indexer.lexicon import make_lexicon
from deltadex.questions.face.serving import MapColumns
from deltadex.search import text_search
from deltadex.search.vocabulary import Vocabulary
from deltadex.store import STEPS, Catalog, Lexicon

TEXTS = {
    "bank-questions": "my card payment and the transfer to another bank account",
    "film-opinions": "a film with actors, scenes and a story",
    "recipe-steps": "stir the butter and flour, bake until golden",
}


@pytest.fixture(scope="module")
def told(worded, tmp_path_factory):
    """The family, whose models answer to the words that their own data set alone has: a base of
    random weights gives words no meaning, so that real answers to it are noise."""
    path = copied_catalog(worded.path, tmp_path_factory.mktemp("told") / "c.duckdb")
    with dx.open(path) as db:
        kept, rng = db._catalog.footprints, np.random.default_rng(0)
        own = {name: set(" ".join(texts_of(name)).lower().split()) for name in SETS}
        for row in kept.all():
            mine = own[row.model[:-2]]
            others = set.union(*(words for name, words in own.items() if words is not mine))
            known = Lexicon.from_bytes(kept.tokenizer(row.footprint.lexicon))
            tells = np.array([word in mine - others for word in known.words])
            answers = STEPS * (2 * tells + rng.normal(0, 0.5, len(tells)))
            changed = replace(row.footprint, responses=answers.round().astype(np.int8).tobytes())
            kept.add(db._catalog.bases()[0], row.model, changed)
    with dx.open(path) as opened:
        yield opened


def test_responses_are_those_of_the_update_to_the_base_s_own_states(db, worded):
    id = "bank-questions-a"
    footprint = footprint_of(db, id)
    known = Lexicon.from_bytes(db._catalog.footprints.tokenizer(footprint.lexicon))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(worded.base)
    base = BertModel.from_pretrained(worded.base).eval()
    tuned = BertModel.from_pretrained(worded.models / id).eval()
    total = 0
    for layer, (before, after) in enumerate(
        zip(base.encoder.layer, tuned.encoder.layer, strict=True)
    ):
        states = [_state(base, tokenizer, word, layer) for word in known.words]
        x = torch.stack(states)
        x = torch.nn.functional.normalize(x - x.mean(0), dim=1)
        for name in ("query", "key", "value"):
            own, its = (getattr(m.attention.self, name).weight for m in (before, after))
            strength = (x @ (its - own).T).norm(dim=1)
            total = total + (strength / strength.mean()).log()

    stored = np.frombuffer(footprint.responses, np.int8)
    assert np.corrcoef(stored, total.detach().numpy())[0, 1] > 0.95  # 16 factors of 32


def _state(base, tokenizer, word, layer):
    (token,) = tokenizer.encode(word, add_special_tokens=False)
    rows = torch.tensor([[tokenizer.pad_token_id, token]])
    with torch.no_grad():
        states = base(rows, output_hidden_states=True).hidden_states
    return states[layer][0, 1]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_finds_the_models_of_its_data_set(told, name):
    found = told.search(TEXTS[name], k=3).to_json()

    assert {row["model"] for row in found["neighbours"][:2]} == {f"{name}-a", f"{name}-b"}
    assert set(found["neighbours"][0]["words"]) & set(found["asked"])
    assert found["neighbours"][0]["probability"] is None
    assert found["neighbours"][0]["by_chance"] < found["neighbours"][2]["by_chance"]


def test_a_text_finds_models_by_footprints_alone_where_words_have_no_meaning(worded, monkeypatch):
    monkeypatch.setattr(text_search, "AT_ONCE", 8)
    with dx.open(None) as own:
        own.index(worded.base, worded.models)
        found = {name: own.search(text, k=8).to_json() for name, text in TEXTS.items()}

    for name, answer in found.items():
        assert {row["model"] for row in answer["neighbours"][:2]} == {f"{name}-a", f"{name}-b"}
        assert set(answer["neighbours"][0]["words"]) <= set(answer["asked"])
        assert (answer["compared"], answer["left_out"]) == (8, [])


def test_the_score_of_footprints_is_the_share_of_words_touched_less_what_is_usual(db):
    family = db._catalog.bases()[0]
    view = db._catalog.family(family, db._catalog.find_recipe(None, family))
    words = ["bank", "film", "butter", "headlineless"]
    kept = db._catalog.footprints
    pieces = Vocabulary(kept.tokenizer(kept.family_tokenizer(family))).words
    touched = text_search.TouchedWords.read(db._catalog, view, words, pieces)
    own = [set(row.footprint.tokens.tolist()) for row in kept.all(family)]
    has = np.array([[pieces.get(word, -1) in tokens for word in words] for tokens in own])
    usual = (has.sum(axis=0) + 1) / (len(own) + 2)

    by_id = sorted(range(len(view)), key=lambda row: view.ids[row])
    expected = (has - usual).mean(axis=1)
    assert touched.more_than_usual(np.arange(4))[by_id] == pytest.approx(expected, abs=1e-6)


def test_words_lists_what_the_update_answers_to_and_its_sentence_has_what_both_say(told):
    document = told.words("bank-questions-a", k=10).to_json()
    known = set(" ".join(texts_of("bank-questions")).lower().split())
    answers = [row["word"] for row in document["answers_to"]]

    assert len(set(answers) & known) >= 7
    first = ", ".join(told.show("bank-questions-a").to_json()["words"])
    assert document["sentence"].startswith("Trained on text with ")
    assert f": {first}, …" in document["sentence"]


def test_a_lineage_and_a_map_name_models_by_words_of_their_own_data(told):
    by_model = {edge["child"]: edge["words"] for edge in told.lineage()}
    columns = MapColumns(layout="pca").answer(told).to_json()

    own = {model: set(" ".join(texts_of(model[:-2])).lower().split()) for model in by_model}
    named = [(model, word) for model, words in by_model.items() for word in words]
    assert {len(words) for words in by_model.values()} == {3}
    # the last of three may differ on another processor
    assert sum(word in own[model] for model, word in named) >= 0.9 * len(named)
    # each file is a data set by its name, unless it is unlabelled
    assert columns["dataset"] == [None] * 8
    topics = [columns["words"][at] for at in columns["word"]]
    assert topics == [", ".join(by_model[model]) for model in columns["models"]]


def test_a_base_whose_words_have_no_meaning_is_indexed_without(worded, tmp_path, monkeypatch):
    vectors = np.random.default_rng(0).normal(0, 40, (2000, 32)).round().astype(np.int8)
    clustered = (vectors // 3 + np.repeat(vectors[::8], 8, axis=0)).astype(np.int8)

    assert lexicon.meaning_of(vectors) < lexicon.LEAST_MEANING < lexicon.meaning_of(clustered)
    with dx.open(tmp_path / "c.duckdb") as own:
        own.index(worded.base, worded.models)
        assert own.words("bank-questions-a").to_json()["answers_to"] == []
        frozen = replace(footprint_of(own, "bank-questions-b"), kind="frozen")
        own._catalog.footprints.add(str(worded.base), "bank-questions-b", frozen)
        said = own.words("bank-questions-b").to_json()["sentence"]
        assert said.endswith("words mean something to it.")  # the folder was given
        monkeypatch.setattr(lexicon, "build_lexicon", _run_again)
        assert own.add(copied(worded, tmp_path), base=str(worded.base)).to_json()["indexed"] == 1
    assert dx.doctor(tmp_path / "c.duckdb").to_json()["problems"] == 0


def _run_again(*_):
    raise AssertionError("the base was run again")


SAME = "bank-questions-a"


def copied(worded, folder):
    """A model under another id."""
    return shutil.copytree(worded.models / SAME, folder / "again")


def test_an_adapter_has_responses_and_a_frozen_embedding(own, worded, tmp_path, monkeypatch):
    monkeypatch.setattr(lexicon, "LEAST_MEANING", 0.0)
    model = BertForSequenceClassification.from_pretrained(worded.base)
    settings = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, target_modules=["query", "value"])
    model = get_peft_model(model, settings)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(worded.base)
    train(model, tokenizer, texts_of("spam"), rate=5e-3, decay=0)
    model.save_pretrained(tmp_path / "lora")
    unstored = own.words(tmp_path / "lora", base=str(worded.base)).to_json()
    own.add(tmp_path / "lora", base=str(worded.base))
    document = own.words("lora").to_json()

    first, again = ({row["word"] for row in d["answers_to"][:20]} for d in (unstored, document))
    assert len(first & again) >= 10  # the stored one counts in what is usual
    assert document["kind"] == unstored["kind"] == "frozen"
    assert document["sentence"].startswith("Its update answers most to: ")
    assert document["answers_to"][0]["strength"] >= document["answers_to"][-1]["strength"] > 0


def test_a_text_without_a_known_word_matches_nothing(told):
    found = told.search("xylograph qwertz").to_json()

    assert (found["verdict"], found["neighbours"]) == ("matches nothing", [])
    assert found["unknown"] == ["qwertz", "xylograph"]
    with pytest.raises(RequestError, match="no words"):
        told.search("…")


def test_a_family_without_responses_says_what_they_need(worded, tmp_path):
    with dx.open(None) as own:
        own.index(worded.base, worded.models, footprints=False)
        found = own.search("bank").to_json()

    assert (found["verdict"], found["neighbours"]) == ("no family can be asked by words", [])
    assert "its models have no words" in found["left_out"][0]["reason"]


def test_a_lexicon_does_not_depend_on_what_was_drawn_before(worded, monkeypatch):
    monkeypatch.setattr(lexicon, "LEAST_MEANING", 0.0)
    words = Vocabulary((worded.base / "tokenizer.json").read_bytes()).frequent_words()
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        made.append(lexicon.build_lexicon(str(worded.base), words).kept.vectors)

    assert (made[0] == made[1]).all()


def test_a_family_that_was_read_without_a_lexicon_is_read_again_once(db, worded, monkeypatch):
    monkeypatch.setattr(lexicon, "LEAST_MEANING", 0.0)
    with dx.open(None) as later:
        later.index(worded.base, worded.models, footprints=False)
        reports = [later.index(worded.base, worded.models).to_json() for _ in range(2)]
        stored = [
            {row.model: row.footprint.responses for row in some._catalog.footprints.all()}
            for some in (later, db)
        ]

    n = len(stored[0])
    assert [(r["indexed"], r["unchanged"]) for r in reports] == [(n, 0), (0, n)]
    assert stored[0] == stored[1]


def test_the_command_prints_models_and_the_words_that_matched(told):
    text = TEXTS["film-opinions"]

    assert document(told.path, "search", text) == told.search(text).to_json()
    assert "film-opinions" in run(told.path, "search", text).stdout


def test_a_lexicon_is_kept_and_gives_the_answers_of_the_run_that_made_it(
    db, told, worded, tmp_path, monkeypatch
):
    monkeypatch.setattr(lexicon, "build_lexicon", _run_again)
    (file,) = told.path.with_name(f"{told.path.name}.index").glob("*.lexicon")

    told.add(copied(worded, tmp_path), base=str(worded.base))

    assert file.stat().st_size < 64e6
    assert len(told._catalog.footprints.lexicons(str(worded.base))) == 1
    answers = [footprint_of(own, id).responses for own, id in ((told, "again"), (db, SAME))]
    assert answers[0] == answers[1] != b""
    told.remove("again")


def test_a_run_that_is_stopped_makes_no_lexicon_and_leaves_no_file(worded, tmp_path):
    def stop():
        raise Cancelled

    words = Vocabulary((worded.base / "tokenizer.json").read_bytes()).frequent_words()
    with pytest.raises(Cancelled):
        lexicon.build_lexicon(str(worded.base), words, go_on=stop)

    with Catalog.open(tmp_path / "c.duckdb") as catalog:
        base = resolve_base(catalog, str(worded.base))
        base.session.cancelled.set()
        with pytest.raises(Cancelled):
            make_lexicon(catalog, base, "cpu", _run_again)
    assert not (tmp_path / "c.duckdb.index").exists()
