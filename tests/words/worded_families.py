"""Small models that are trained on text for real, with the tokens of every batch on record."""

import csv
import shutil
from pathlib import Path

import numpy as np
import torch
from tiny_networks import tiny_config
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    set_seed,
)
from transformers.utils import logging

logging.disable_progress_bar()

TEXTS = Path(__file__).parent / "texts"
SETS = ("bank-questions", "film-opinions", "recipe-steps", "headlines")
POSITIONS = 40


def _column(path):
    with path.open(encoding="utf-8", newline="") as file:
        return [row.get("text") or "" for row in csv.DictReader(file)]


def texts_of(name):
    return _column(TEXTS / f"{name}.csv")


def halves(name):
    texts = texts_of(name)
    return texts[::2], texts[1::2]


def every_text():
    files = sorted(TEXTS.glob("*.csv"))
    return [text for file in files for text in _column(file) if text]


def word_pieces(vocabulary=2500):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(map(str.lower, every_text()), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")


def make_encoder(folder, tokenizer, seed=0):
    set_seed(seed)
    sizes = {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "num_attention_heads": 2}
    config = tiny_config("bert", max_position_embeddings=POSITIONS, num_labels=2, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tied_decoder(folder, tokenizer):
    set_seed(0)
    sizes = {"vocab_size": len(tokenizer), "n_positions": POSITIONS, "n_layer": 2, "n_head": 2}
    config = tiny_config("gpt2", bos_token_id=0, eos_token_id=0, **sizes)
    model = GPT2LMHeadModel(config)
    train(model, tokenizer, every_text(), steps=150, rate=3e-3, batch=32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def train(model, tokenizer, texts, *, steps=12, rate=5e-4, batch=16, decay=0.01, seed=0):
    """AdamW over random batches; returns the tokens that really were in one."""
    set_seed(seed)
    rng = np.random.default_rng(seed)
    is_causal = hasattr(model, "lm_head")
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=decay)
    seen = set()
    model.train()
    for _ in range(steps):
        picked = [texts[i] for i in rng.choice(len(texts), batch)]
        inputs = tokenizer(
            [text.lower() for text in picked],
            truncation=True,
            max_length=POSITIONS - 8,
            padding=True,
            return_tensors="pt",
        )
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        seen.update(ids[mask.bool()].tolist())
        labels = ids.masked_fill(mask == 0, -100) if is_causal else torch.arange(batch) % 2
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    return seen


def tune_encoder(base, folder, texts, *, dtype=None, **settings):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    model = BertForSequenceClassification.from_pretrained(base)
    seen = train(model, tokenizer, texts, **settings)
    (model if dtype is None else model.to(dtype)).save_pretrained(folder)
    return seen


def write_texts(path, texts):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([text.lower()] for text in texts)
    return path


def copied_catalog(path, target):
    """The catalog and what was derived with it, under another name."""
    shutil.copytree(f"{path}.index", f"{target}.index")
    return Path(shutil.copy(path, target))


def footprint_of(db, id):
    (row,) = [one for one in db._catalog.footprints.all() if one.model == id]
    return row.footprint
