"""Gradients of layer matrices, added up from what hooks see, as sketches."""

from .gradient_sums import GradientSums as GradientSums
from .gradient_sums import LayerMatrices as LayerMatrices
from .gradient_sums import columns_of as columns_of
from .gradient_sums import layer_matrices as layer_matrices
