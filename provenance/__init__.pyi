from .lineage import trace_lineage as trace_lineage
