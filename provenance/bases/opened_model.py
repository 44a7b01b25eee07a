"""A model whose files are open: headers, config, and a run of every layer matrix."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property

from ... import indexer
from ...errors import ModelError
from .base_invariants import ModelRows

_FACTS = {
    "model_type": ("model_type",),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model", "dim"),
    "vocabulary": ("vocab_size",),
}
"""What `bases ls` shows of a config, and the names that it has there."""


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A full checkpoint, open; use as long as `open_model`'s block lasts."""

    member: indexer.Member
    checkpoint: indexer.Checkpoint

    @property
    def source(self) -> str:
        """The folder, or the Hub id."""
        return str(self.member.folder or self.member.record.id)

    @cached_property
    def matrices(self) -> tuple[indexer.LayerMatrix, ...]:
        """The matrices of numbered layers, by the headers."""
        return indexer.layer_matrices(self.checkpoint.tensors, self.member.config)

    def unread_beside(self, compared: Collection[str]) -> list[str]:
        """The tensors of its layers that are not among those that were compared; of experts, which
        are sampled, those of a layer are compared with the first."""
        shapes = self._shapes
        placed = set(self._placed.by_tensor()) if self._placed else set()
        sampled = {matrix.tensor for matrix in self.matrices}
        rest = [name for name in shapes if name not in compared and name not in placed - sampled]
        return sorted(indexer.find_unread(rest, shapes))

    @cached_property
    def samples(self) -> tuple[indexer.MatrixSample, ...]:
        """A run of every layer matrix; read at the first use."""
        return indexer.sample_matrices(self.checkpoint, self.matrices)

    @cached_property
    def rows(self) -> ModelRows | None:
        """Rows that are read one by one; None where no rule places its matrices."""
        placed = self._placed
        return None if placed is None else ModelRows(self.checkpoint, placed, self.member.config)

    @cached_property
    def _placed(self) -> indexer.PlacedModel | None:
        try:
            return indexer.place(self._shapes, self.member.config)
        except ModelError:
            return None

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: ref.shape for name, ref in self.checkpoint.tensors.items()}

    @cached_property
    def facts(self) -> dict[str, str | int]:
        """Type, layers, width and vocabulary, as far as the config says them."""
        config = dict(self.member.config or {})
        nested = config.get("text_config")
        scopes = [config, *([nested] if isinstance(nested, dict) else [])]
        facts: dict[str, str | int] = {}
        for fact, names in _FACTS.items():
            values = (scope.get(name) for scope in scopes for name in names)
            value = next((v for v in values if isinstance(v, str | int)), None)
            if value is not None:
                facts[fact] = value
        tokens = indexer.form_of(self.checkpoint.tensors, self.matrices)["vocabulary"]
        if tokens is not None:
            facts["vocabulary"] = tokens
        return facts


@contextmanager
def open_model(model: str | indexer.Member) -> Iterator[OpenedModel]:
    """The model in a folder or of a Hub id, as long as the block lasts; a `ModelError` where it is
    no full checkpoint that can be read."""
    member = indexer.find_member(model, "") if isinstance(model, str) else model
    if member.refusal is not None:
        raise member.refusal
    member = member.with_config()
    if member.is_adapter:
        raise ModelError("no-weights", "an adapter, not a full checkpoint")
    with closing(member.checkpoint(indexer.FEW_BYTES)) as checkpoint:
        scheme = indexer.quantization(member.config, checkpoint.tensors.values(), ())
        if scheme:
            raise ModelError("quantized", f"weights are stored as {scheme}")
        yield OpenedModel(member, checkpoint)
