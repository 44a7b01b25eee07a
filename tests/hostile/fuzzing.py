"""How many examples: few by default, the same ones every time; more where it may take long."""

from hypothesis import HealthCheck, settings

few = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
many = settings(few, max_examples=5000, derandomize=False)
