"""Networks as the studies see them: loaded, hooked, run over texts."""

from .load import Network, load_network, untrained_twin
from .states import TokenStates, token_states

__all__ = ["Network", "TokenStates", "load_network", "token_states", "untrained_twin"]
