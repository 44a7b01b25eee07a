from .extraction import MATRIX_BYTES as MATRIX_BYTES
from .extraction import extract_adapter as extract_adapter
from .extraction import parse_bytes as parse_bytes
from .lineage import trace_lineage as trace_lineage
from .signatures import known_bases as known_bases
from .signatures import register as register
from .trace import trace_model as trace_model
