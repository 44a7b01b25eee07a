from .extraction import MATRIX_BYTES as MATRIX_BYTES
from .extraction import extract_adapter as extract_adapter
from .extraction import parse_bytes as parse_bytes
