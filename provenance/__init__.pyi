from .signatures import known_bases as known_bases
from .signatures import register as register
from .trace import trace_model as trace_model
