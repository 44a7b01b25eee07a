"""Studies of models; that of an indexed model is stored beside its fingerprint."""

from .ablation_call import AblationCall
from .calls import Running
from .components_call import ComponentsCall
from .geometry_call import GeometryCall
from .layers_call import LayersCall
from .profile_call import ProfileCall
from .rank_call import RankCall
from .spectrum_call import SpectrumCall

__all__ = ["Running", "Studies"]


class Studies(
    RankCall,
    SpectrumCall,
    ComponentsCall,
    GeometryCall,
    LayersCall,
    ProfileCall,
    AblationCall,
):
    """Every study that a `Database` makes."""
