"""Networks as the studies see them: loaded, hooked, run over texts."""

from .anatomy import decoder_start
from .hidden_states import TokenStates, text_window, token_states
from .language_head import load_head
from .model_loading import Network, load_network, paired_matrices, untrained_twin
from .task_model import TaskModel, load_task_model, load_tokenizer, predicts_next_token

__all__ = [
    "Network",
    "TaskModel",
    "TokenStates",
    "decoder_start",
    "load_head",
    "load_network",
    "load_task_model",
    "load_tokenizer",
    "paired_matrices",
    "predicts_next_token",
    "text_window",
    "token_states",
    "untrained_twin",
]
