from .ablation import draw_ablation
from .cka import draw_cka
from .components import draw_components
from .data_scores import DataScores, draw_data_scores
from .figures import Picture, Width, check_ending, new_picture, save_picture
from .geometry import draw_geometry
from .layers import draw_layers
from .logit_lens import draw_logit_lens
from .rank import draw_ranks
from .spectrum import draw_spectra

__all__ = [
    "DataScores",
    "Picture",
    "Width",
    "check_ending",
    "draw_ablation",
    "draw_cka",
    "draw_components",
    "draw_data_scores",
    "draw_geometry",
    "draw_layers",
    "draw_logit_lens",
    "draw_ranks",
    "draw_spectra",
    "new_picture",
    "save_picture",
]
