"""What a model card says: its bases, and the dataset as one comparable name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import yaml

from .checkpoint import Config
from .untrusted_text import base_key, distinct_texts, shown, table_of

MAX_CARD_CHARS = 400_000
MAX_PARENTS = 64

MAX_DEPTH = 50
"""Lists and mappings within one another; real cards have some six."""

MAX_SCALAR = 10_000
"""Characters of a value that YAML may take for a number: base-60 digits cost their square."""

_canonical = partial(table_of, "canonical_datasets.json")

_CLOSING = re.compile(r"^---[ \t\r]*$", re.MULTILINE)

MAX_RESULTS = 10_000
"""Results that are read of a model-index; by its anchor a card can repeat one without end."""

_SENTENCE = re.compile(
    r"fine[- ]?tuned version of .{1,300}? on the "
    r"\[?`?(?P<name>[\w./ -]{2,80}?)`?\]?(\([^)]{0,300}\))? dataset",
    re.IGNORECASE | re.DOTALL,
)


class _CardLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without merge keys, of which a few lines expand to any size."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None: ...


def split_card(text: str) -> tuple[dict[str, object], str]:
    """(front matter, body); an unreadable front matter counts as empty."""
    text = text[:MAX_CARD_CHARS]
    first, _, rest = text.removeprefix("\ufeff").lstrip().partition("\n")
    closing = _CLOSING.search(rest) if first.rstrip() == "---" else None
    if closing is None:
        return {}, text
    front = _read_yaml(rest[: closing.start()])
    return (dict(front) if isinstance(front, Mapping) else {}), rest[closing.end() + 1 :]


def card_bases(front: Config) -> tuple[str, ...]:
    """Every base_model that a card names, in its order: a merge has several."""
    value = front.get("base_model")
    return distinct_texts(value[:MAX_PARENTS] if isinstance(value, list) else [value])


def parents_note(parents: Sequence[str]) -> tuple[str, ...]:
    """What a model's notes say of several parents; nothing of spellings of one."""
    distinct = {base_key(parent): parent for parent in reversed(parents)}
    if len(distinct) < 2:
        return ()
    listed = ", ".join(shown(parent) for parent in parents if parent in distinct.values())
    return (f"its card names the parents {listed}",)


def _read_yaml(text: str) -> object:
    try:
        return yaml.load(text, _CardLoader) if _is_modest(text) else None
    # PyYAML's constructors fail in any way on values that are not of their tag.
    except Exception:
        return None


def _is_modest(text: str) -> bool:
    """Whether neither nesting nor a number could take long, by its events alone."""
    depth = 0
    for event in yaml.parse(text, _CardLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent):
            may_be_number = event.tag or event.implicit[0]
            if may_be_number and len(event.value) > MAX_SCALAR:
                return False
    return True


def label_of(
    *, name: str, tags: Iterable[object] = (), card: Config | None = None, text: str = ""
) -> dict[str, Any]:
    """`dataset`, `dataset_raw` and `label_source` of a `ModelRecord`, by the first label that names
    data: tags, card, model-index, card sentence, name. A collection of which nothing tells the part
    is no label to compare: it is kept as it is spelled, beside a name's guess too."""
    card = card or {}
    hint = _name_hint(name)
    collection, needs_part = "", _canonical()["needs_config"]
    for source, labels in (
        ("tags", [str(t)[8:] for t in tags if str(t).startswith("dataset:")]),
        ("card", _strings(card.get("datasets"))),
        ("model-index", _index_datasets(card.get("model-index"))),
        ("sentence", [m["name"]] if (m := _SENTENCE.search(text[:100_000])) else []),
        ("name", [hint] if hint else []),
    ):
        names = sorted({n for raw in labels if (n := normalise(raw, hint=hint))})
        if names:
            spelled = "+".join(sorted(set(labels)))
            raw = (source == "name" and collection) or spelled
            return {"dataset": "+".join(names), "dataset_raw": raw, "label_source": source}
        of_several = {r for r in labels if r.strip().rsplit("/", 1)[-1].lower() in needs_part}
        collection = collection or "+".join(sorted(of_several))
    return {"dataset": None, "dataset_raw": collection or None, "label_source": None}


def normalise(raw: str, *, hint: str | None = None) -> str | None:
    """`raw` without the owner of a well-known dataset; None where it names no data.

    A collection (GLUE) means nothing without the part that was used: that comes from
    `collection/part`, or from `hint`, the part that the model's own name mentions.
    """
    data = _canonical()
    parts = [re.sub(r"[\s-]+", "_", p.strip().lower()) for p in raw.strip().split("/") if p.strip()]
    if not parts or parts[-1] in data["meaningless"]:
        return None
    known = next((i for i, p in enumerate(parts) if p in data["names"]), None)
    if known is None:
        return "/".join(parts)
    collection, rest = parts[known], parts[known + 1 :]
    if collection not in data["needs_config"]:
        return "/".join([collection, *rest])
    if rest:
        return f"{collection}/{rest[0]}"
    return hint if hint and hint.startswith(collection + "/") else None


def _name_hint(name: str) -> str | None:
    """The well-known dataset that a model's own name mentions between hyphens, longest first."""
    table: dict[str, str] = _canonical()["in_names"]
    hyphenated = "-" + re.sub(r"[^a-z0-9]+", "-", name.lower().rsplit("/", 1)[-1]) + "-"
    mentions = [word for word in table if f"-{word.replace('_', '-')}-" in hyphenated]
    return table[max(mentions, key=len)] if mentions else None


def _index_datasets(index: object) -> list[str]:
    names = []
    entries = index if isinstance(index, list) else []
    results = (result for entry in entries for result in _dicts(entry, "results"))
    for result in islice(results, MAX_RESULTS):
        dataset = result.get("dataset")
        if not isinstance(dataset, Mapping):
            continue
        name = dataset.get("type") or dataset.get("name")
        part = dataset.get("config") or dataset.get("args")
        if isinstance(name, str):
            needs_part = name.rsplit("/", 1)[-1].lower() in _canonical()["needs_config"]
            names.append(f"{name}/{part}" if needs_part and isinstance(part, str) else name)
    return names


def _dicts(entry: object, key: str) -> list[Mapping[str, object]]:
    values = entry.get(key) if isinstance(entry, Mapping) else None
    return [v for v in values if isinstance(v, Mapping)] if isinstance(values, list) else []


def _strings(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]
