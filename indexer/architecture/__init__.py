"""Names of tensors to slots, from headers alone."""

from .alignment import in_slots_of as in_slots_of
from .alignment import is_cut_otherwise as is_cut_otherwise
from .alignment import loaded_shape as loaded_shape
from .alignment import pair_unread as pair_unread
from .alignment import require_known_slots as require_known_slots
from .alignment import require_none_new as require_none_new
from .alignment import require_same_layers as require_same_layers
from .alignment import require_within_base as require_within_base
from .fused import read_attention_config as read_attention_config
from .in_memory import tied_parameters as tied_parameters
from .names import find_number as find_number
from .names import has_factor as has_factor
from .names import path_ends as path_ends
from .names import without_numbers as without_numbers
from .placement import Key as Key
from .placement import PlacedModel as PlacedModel
from .placement import Placement as Placement
from .placement import sort_key as sort_key
from .placement import whole_modules as whole_modules
from .placing import find_unread as find_unread
from .placing import is_matrix as is_matrix
from .placing import layer_modules as layer_modules
from .placing import place as place
from .placing import place_modules as place_modules
