"""What rows say of a sum that sketches named."""

import pytest

from deltadex.provenance.merges.file_on_rows import Reconstruction
from deltadex.provenance.merges.merges import FoundMerge, _agreed
from deltadex.provenance.merges.parents import Parent, Parentage


@pytest.mark.parametrize(
    ("weight", "said"), [(1.0, "the same update as a"), (0.9, "0.9 a, the rest of the base's")]
)
def test_a_parent_of_weight_1_is_a_copy_and_not_scaled(weight, said):
    named = (Parent(model="a", weight=0.98),)
    found = Parentage(kind="scaled", parents=named)
    proof = Reconstruction(method="linear", weights=(weight,), share=1.0, chance=0.0)

    agreed = _agreed(found, named, proof, "encoder")

    assert agreed.kind == ("copy" if weight == 1.0 else "scaled")
    assert FoundMerge(model="m", base="b", parentage=agreed).sentence.startswith(said)
