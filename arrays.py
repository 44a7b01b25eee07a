"""Array types whose annotations state dtype and shape, as jaxtyping spells them.

Importing jaxtyping takes a fifth of the time that a short command takes, so that only what checks
shapes loads it: a type checker, or a program that imported it before deltadex.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool as Bool
    from jaxtyping import Float as Float
    from jaxtyping import Float16 as Float16
    from jaxtyping import Float32 as Float32
    from jaxtyping import Float64 as Float64
    from jaxtyping import Int8 as Int8
    from jaxtyping import Int64 as Int64
    from jaxtyping import Shaped as Shaped
    from jaxtyping import UInt8 as UInt8
    from jaxtyping import UInt32 as UInt32
    from jaxtyping import UInt64 as UInt64
else:
    from typing import Annotated

    Bool = Float = Float16 = Float32 = Float64 = Int8 = Int64 = Annotated
    Shaped = UInt8 = UInt32 = UInt64 = Annotated
