"""Adapters that strangers trained, where a checkout has them beside it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from deltadex.errors import REASONS, ModelError
from deltadex.indexer.adapter import read_adapter
from deltadex.indexer.checkpoint import open_adapter_weights

WILD = Path(__file__).parents[3] / "shared" / "data" / "adapters"
FOLDERS = sorted(path.parent for path in WILD.glob("*/*/adapter_config.json"))


@pytest.mark.skipif(not FOLDERS, reason="no adapters of strangers beside the checkout")
def test_every_adapter_has_finite_updates_or_a_reason():
    read, refused = 0, []
    for folder in FOLDERS:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        checkpoint = open_adapter_weights(folder)
        try:
            adapter = read_adapter(checkpoint, config)
            norms = [adapter.delta(m, None).norm for m in adapter.modules]
        except ModelError as err:
            refused.append(err.code)
            continue
        finally:
            checkpoint.close()
        read += 1
        assert norms
        assert all(map(math.isfinite, norms)), folder.name

    assert read > 0
    assert {*refused} <= REASONS.keys()
