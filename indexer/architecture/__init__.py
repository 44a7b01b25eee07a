"""Which slot a tensor fills, whatever its model calls it and however it is fused.

Matrices that cannot be placed, and models that do not fit their base, are a `ModelError`.
"""

from .place import Key as Key
from .place import PlacedModel as PlacedModel
from .place import Placement as Placement
from .place import layer_modules as layer_modules
from .place import path_ends as path_ends
from .place import place as place
from .place import place_modules as place_modules
from .place import require_known_slots as require_known_slots
from .place import require_same_layers as require_same_layers
from .place import require_within_base as require_within_base
