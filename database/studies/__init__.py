"""Studies of models; that of an indexed model is stored beside its fingerprint."""

from .ablation_call import AblationCall
from .calls import Running
from .cka_call import CkaCall
from .components_call import ComponentsCall
from .correlate_call import CorrelateCall
from .layers_call import LayersCall
from .logit_lens_call import LogitLensCall
from .profile_call import ProfileCall
from .spectrum_call import SpectrumCall

__all__ = ["Running", "Studies"]


class Studies(
    SpectrumCall,
    ComponentsCall,
    LayersCall,
    ProfileCall,
    AblationCall,
    CkaCall,
    LogitLensCall,
    CorrelateCall,
):
    """Every study that a `Database` makes."""
