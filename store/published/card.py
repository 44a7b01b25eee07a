"""The card of a published index: what it holds, how it is searched, how a model is removed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence

from ...records import Recipe

_LICENCE = re.compile(r"[a-z0-9.+-]{1,40}")

FEW = 12
"""Licences of models that a card counts one by one."""


def is_licence(text: str) -> bool:
    """Whether a text can be the `license` of a dataset card."""
    return _LICENCE.fullmatch(text) is not None


def card_text(
    *,
    base: str,
    base_revision: str | None,
    recipe: Recipe,
    licences: Sequence[str | None],
    kinds: Sequence[str],
    n_bytes: int,
    created: str,
    licence: str,
    where: str,
) -> str:
    """The card, with the front matter of a dataset on the Hub.

    Args:
        licences, kinds: Of every model.
        n_bytes: Of all files but this.
        licence: Of the index itself.
        where: What `attach` is given.
    """
    counted = Counter(licence or "not stated" for licence in licences)
    shown = "".join(f"| {_cell(name)} | {n} |\n" for name, n in counted.most_common(FEW))
    more = len(counted) - FEW
    rest = f"| {more} others | {sum(n for _, n in counted.most_common()[FEW:])} |\n"
    by_kind = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(kinds).items()))
    front = [
        f"license: {licence}",
        *(["license_name: see-each-model"] if licence == "other" else []),
        "tags:",
        "- deltadex",
        "- model-fingerprints",
        f"pretty_name: {json.dumps(f'deltadex index of {base}')}",
        "configs:",
        "- config_name: models",
        "  data_files: models-*.parquet",
    ]
    return (
        "---\n" + "\n".join(front) + "\n---\n\n"
        f"# An index of the fine-tunes of {_cell(base)}\n\n"
        f"{len(kinds)} models ({by_kind}), published {created} by "
        "deltadex. A fine-tune of the same base is compared with them by its weights alone.\n\n"
        f"```\ndeltadex attach {where}\ndeltadex find-similar some/model\n```\n\n"
        "## What it holds\n\n"
        "For each model: its id, labels, author, licence, revision and hash as the Hub or its "
        "card state them, and a fingerprint of its weight update. A fingerprint is "
        f"{recipe.dim} numbers (recipe `{recipe.id}`); weights cannot be restored from it. No "
        "weights, texts, local paths or tokens are in these files.\n\n"
        f"* Base: {_cell(base)}, revision {_cell(base_revision or 'not recorded')}.\n"
        f"* {n_bytes / max(1, len(kinds)):.0f} bytes per model, {n_bytes / 1e6:.2f} MB.\n"
        "* `deltadex-index.json` lists every file with its SHA-256. Parts are never changed: "
        "a later publication adds parts and replaces those of removed models.\n\n"
        "## Licences\n\n"
        f"The index: `{licence}`. Every model keeps its own licence; the column `license` has it "
        "as its author states it.\n\n| licence of models | models |\n| --- | --- |\n"
        f"{shown}{rest if more > 0 else ''}\n"
        "## Removal\n\n"
        "To have a model removed, ask the owner of this repository (on the Hub: Community → New "
        "discussion) and name the model. `deltadex publish --exclude` rewrites the files that "
        "hold it, and remembers a hash of its name, so that it does not come back.\n"
    )


def _cell(text: str) -> str:
    """Text of unknown authors, without what Markdown would obey."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", text)
