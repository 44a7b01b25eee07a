"""From texts to an answer: tiny bases, really fine-tuned on one of three sets of texts."""

import json
import random

import pytest
import torch
import transformers
from click.testing import CliRunner
from factories import save_tokenizer

from deltadex.cli import main

TOPICS = {
    "films": range(5, 20),
    "sports": range(20, 35),
    "weather": range(35, 50),
}
SIZES = dict(vocab_size=64, bos_token_id=2, eos_token_id=3, pad_token_id=0)


def texts_of(topic, *, seed, n=48):
    """Texts of the topic's words, whose first half of words makes one class."""
    draw, words = random.Random(seed), list(TOPICS[topic])
    rows = []
    for row in range(n):
        own = words[: len(words) // 2] if row % 2 else words[len(words) // 2 :]
        rows.append((" ".join(str(draw.choice(own)) for _ in range(10)), row % 2))
    return rows


def base_of(kind):
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=16, **SIZES)
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        **SIZES,
    )
    return transformers.BertModel(config)


def fine_tune(kind, base, rows, *, seed, steps=25):
    """The base after some steps of AdamW on the rows, without dropout."""
    model = base_of(kind)
    model.load_state_dict(base.state_dict())
    model.eval()
    torch.manual_seed(seed)
    head = torch.nn.Linear(32, 2)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    for _ in range(steps):
        chosen = torch.randint(len(rows), (16,)).tolist()
        ids = torch.tensor([[2, *map(int, rows[row][0].split()), 3] for row in chosen])
        if kind == "gpt2":
            loss = model(ids, labels=ids).loss
        else:
            labels = torch.tensor([rows[row][1] for row in chosen])
            states = model(ids).last_hidden_state.mean(dim=1)
            loss = torch.nn.functional.cross_entropy(head(states), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("kind", ["gpt2", pytest.param("bert", marks=pytest.mark.slow)])
def test_the_fine_tunes_of_a_set_are_nearest_to_other_texts_of_it(kind, tmp_path):
    base = base_of(kind)
    base.save_pretrained(tmp_path / "base")
    save_tokenizer(tmp_path / "base")
    for number, topic in enumerate(TOPICS):
        for run in range(3):
            rows = texts_of(topic, seed=10 * number + run)
            tuned = fine_tune(kind, base, rows, seed=100 * number + run)
            tuned.save_pretrained(tmp_path / "models" / f"{topic}-{run}")
    asked = ["--db", str(tmp_path / "c.duckdb"), "--json"]
    made = CliRunner().invoke(
        main, ["index", str(tmp_path / "base"), str(tmp_path / "models"), *asked]
    )
    assert made.exit_code == 0, made.output

    for number, topic in enumerate(TOPICS):
        data = tmp_path / f"{topic}.csv"
        rows = texts_of(topic, seed=1000 + number)
        data.write_text("\n".join(["text,label", *(f"{t},class {c}" for t, c in rows)]))
        result = CliRunner().invoke(main, ["find-trained-on", str(data), "--text", "text", *asked])
        assert result.exit_code == 0, result.output
        nearest = [model["model"] for model in json.loads(result.stdout)["neighbours"]]
        assert [id.rpartition("-")[0] for id in nearest[:1]] == [topic], nearest
