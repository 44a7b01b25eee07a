"""Updates to fingerprints: factors of each ΔW, gauge-free features of them, one pooled vector."""

from .mean_factors import Layout as Layout
from .mean_factors import family_layout as family_layout
from .recipes import DEFAULT_RECIPE as DEFAULT_RECIPE
from .recipes import POWER_STEPS as POWER_STEPS
from .recipes import VERSIONS as VERSIONS
from .recipes import Collector as Collector
from .recipes import Measurement as Measurement
from .recipes import Pool as Pool
from .recipes import UpdateCollector as UpdateCollector
from .recipes import make_pool as make_pool
from .recipes import make_recipe as make_recipe
from .sketch import LinearPool as LinearPool
from .sketch import SketchPool as SketchPool
from .sketch import has_linear_sketch as has_linear_sketch
