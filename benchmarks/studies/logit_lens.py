"""The logit lens: `deltadex logit-lens`, a full pass for each layer, and all logits in memory.

    python benchmarks/studies/logit_lens.py [--layers 12] [--dim 256] [--vocabulary 8000]
        [--texts 32] [--tokens 64] [--repeats 3]

A random GPT-2; all methods give, by layer, the share of tokens with the last layer's top token,
cross-entropy and KL. Methods take turns in one process; peaks are of logits alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import transformers

from deltadex.study.lens import lens_study
from deltadex.study.lens.lens_report import LOGITS_AT_ONCE
from deltadex.study.network.causal_model import CausalModel, as_causal
from deltadex.study.texts import Text

OURS = "deltadex"
BATCH = 16
Answer = np.ndarray
"""(layers, 3): agreement, nats a token, KL in nats."""


def make_model(layers: int, dim: int, vocabulary: int) -> CausalModel:
    """A random model; the scale of its weights makes layers differ."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_embd=dim,
        n_layer=layers,
        n_head=dim // 32,
        n_positions=256,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=0,
    )
    return as_causal("gpt2", transformers.GPT2LMHeadModel(config), None)


def make_texts(count: int, tokens: int, vocabulary: int) -> list[Text]:
    """Random token ids."""
    rng = np.random.default_rng(0)
    return [
        Text(" ".join(map(str, rng.integers(1, vocabulary, tokens))), "", str(n))
        for n in range(count)
    ]


def by_deltadex(model: CausalModel, texts: Sequence[Text]) -> Answer:
    report = lens_study(model, texts, batch_size=BATCH, max_tokens=256)
    bits = np.log(2)
    return np.array([[x.agreement, x.bits_per_token * bits, x.kl * bits] for x in report.layers])


def by_layer_passes(model: CausalModel, texts: Sequence[Text]) -> Answer:
    """Straightforward: for each layer run the model over all texts, and read that layer."""
    n_layers = len(model.network.stacks[0].blocks) + 1
    return np.array([_mean_of(model, texts, [layer])[0] for layer in range(n_layers)])


def by_all_logits(model: CausalModel, texts: Sequence[Text]) -> Answer:
    """One pass whose batches hold the logits of all layers."""
    return _mean_of(model, texts, range(len(model.network.stacks[0].blocks) + 1))


@torch.inference_mode()
def _mean_of(model: CausalModel, texts: Sequence[Text], layers: Sequence[int]) -> Answer:
    whole: transformers.GPT2LMHeadModel = model.whole
    ids = torch.tensor([[int(i) for i in text.text.split()] for text in texts])
    sums, count = np.zeros((len(layers), 3)), 0
    for batch in ids.split(BATCH):
        raw = _raw_states(whole, batch)
        own = whole.lm_head(whole.transformer.ln_f(raw[-1]))[:, :-1].log_softmax(-1)
        states = torch.stack([raw[layer] for layer in layers])
        logs = whole.lm_head(whole.transformer.ln_f(states))[:, :, :-1].log_softmax(-1)
        surprisal = -logs.gather(-1, batch[None, :, 1:, None].expand(len(layers), -1, -1, 1))
        divergence = (own.exp() * (own - logs)).sum(-1)
        agreement = (logs.argmax(-1) == own.argmax(-1)).float()
        for column, values in enumerate((agreement, surprisal[..., 0], divergence)):
            sums[:, column] += values.double().sum((1, 2)).numpy()
        count += batch.numel() - len(batch)
    return sums / count


def _raw_states(whole: transformers.GPT2LMHeadModel, ids: torch.Tensor) -> list[torch.Tensor]:
    """The residual stream at every layer; transformers' own last one is after the final norm."""
    raw: list[torch.Tensor] = []
    blocks = whole.transformer.h
    hooks = [
        blocks[0].register_forward_pre_hook(lambda _, args: raw.append(args[0])),
        *(b.register_forward_hook(lambda _, args, out: raw.append(_first(out))) for b in blocks),
    ]
    whole.transformer(ids)
    for hook in hooks:
        hook.remove()
    return raw


def _first(output: object) -> torch.Tensor:
    tensor = output[0] if isinstance(output, tuple) else output
    assert isinstance(tensor, torch.Tensor)
    return tensor


METHODS: dict[str, Callable[[CausalModel, Sequence[Text]], Answer]] = {
    OURS: by_deltadex,
    "a pass for each layer": by_layer_passes,
    "one pass, all logits in memory": by_all_logits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = make_model(args.layers, args.dim, args.vocabulary)
    texts = make_texts(args.texts, args.tokens, args.vocabulary)
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    answers: dict[str, Answer] = {}
    for _ in range(args.repeats):
        for name, method in METHODS.items():
            start = time.perf_counter()
            answers[name] = method(model, texts)
            seconds[name].append(time.perf_counter() - start)
    batch = 4 * min(BATCH, args.texts) * args.tokens * args.vocabulary / 2**20
    ours = min(batch, 4 * LOGITS_AT_ONCE / 2**20)
    largest = {OURS: ours, "one pass, all logits in memory": batch * (args.layers + 1)}
    print("| method | s | × deltadex | largest matrix of logits, MiB | difference |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, own in seconds.items():
        ratios = [o / ours for o, ours in zip(own, seconds[OURS], strict=True)]
        difference = float(np.abs(answers[name] - answers["a pass for each layer"]).max())
        print(
            f"| {name} | {statistics.median(own):.2f} | {statistics.median(ratios):.1f} "
            f"| {largest.get(name, batch):.0f} | {difference:.0e} |"
        )
    print(
        f"\nGPT-2 of {args.layers} layers of {args.dim}, {args.vocabulary} tokens, {args.texts} "
        f"texts of {args.tokens}; median of {args.repeats} turns, {args.threads} threads of "
        f"{os.cpu_count()} CPUs ({platform.machine()}, load {os.getloadavg()[0]:.1f}), torch "
        f"{torch.__version__}"
    )


if __name__ == "__main__":
    main()
