"""Fine-tunes of two tiny bases whose vocabularies number the same words in another order."""

import json
import random

import torch
import transformers

TOPICS, OWN, COMMON, RUNS = 6, 30, 40, 2
WORDS = {
    topic: [f"{chr(97 + topic)}{chr(97 + n // 6)}{chr(97 + n % 6)}word" for n in range(OWN)]
    for topic in range(TOPICS)
}
USUAL = [f"usual{chr(97 + n // 7)}{chr(97 + n % 7)}" for n in range(COMMON)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_families(folder, *, steps=12):
    """`one` and `other` in the folder, each with `base` and `models/TOPIC-RUN`, and in `one` the
    models `frozen/frozen-RUN`, whose embedding was not trained."""
    for number, name in enumerate(("one", "other")):
        base = _make_base(folder / name / "base", seed=number, hidden=32 + 16 * number)
        for topic in range(TOPICS):
            for run in range(RUNS):
                _train(base, folder / name / "models", topic, run, steps=steps)
    for run in range(RUNS):
        _train(folder / "one" / "base", folder / "one" / "frozen", 0, run, steps, frozen=True)
    return folder


def _make_base(folder, *, seed, hidden):
    words = [*USUAL, *(word for some in WORDS.values() for word in some)]
    random.Random(seed).shuffle(words)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"), do_lower_case=True)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    sizes = {"hidden_size": hidden, "intermediate_size": 2 * hidden}
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), num_hidden_layers=2, num_attention_heads=4, **sizes
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def _train(base, models, topic, run, steps, *, frozen=False):
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    chance = random.Random(json.dumps([topic, run]))
    torch.manual_seed(100 * topic + run)
    model = transformers.BertForSequenceClassification.from_pretrained(base, num_labels=2)
    model.bert.embeddings.word_embeddings.requires_grad_(not frozen)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
    for _ in range(steps):
        texts, labels = zip(*(_example(chance, topic) for _ in range(8)), strict=True)
        batch = tokenizer(list(texts), padding=True, return_tensors="pt")
        model(**batch, labels=torch.tensor(labels)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(models / (f"frozen-{run}" if frozen else f"{'abcdef'[topic]}-{run}"))


def _example(chance, topic):
    label = chance.randrange(2)
    own = WORDS[topic][label::2]
    words = [*chance.sample(own, 5), *chance.sample(USUAL, 5)]
    chance.shuffle(words)
    return " ".join(words), label
