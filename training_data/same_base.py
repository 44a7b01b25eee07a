"""Whether the weights at a base's name are still those that a family was indexed from."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import RequestError
from ..study.network import TaskModel
from .gradients import layer_matrices


def require_same_base(
    model: TaskModel, architecture: str | None, shapes: Mapping[str, tuple[int, int]]
) -> None:
    """Raise `RequestError` where the family's matrices have other types or shapes than the model's.

    Weights of the same shapes that were replaced are not noticed.
    """
    found = str(model.config.model_type)
    if architecture not in (None, found):
        raise RequestError(
            f"{model.name} is a {found} model now, and the family was indexed from a "
            f"{architecture} model: index the family again"
        )
    for placement in layer_matrices(model.whole, model.config.to_dict()).placements:
        slot = str(placement.slot)
        if slot in shapes and not placement.part and shapes[slot] != placement.shape:
            now, before = list(placement.shape), list(shapes[slot])
            raise RequestError(
                f"{model.name}: {slot} is {now} now and was {before} when the family was "
                "indexed: index the family again"
            )
