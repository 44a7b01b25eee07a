"""What indexing a family would take: models, bytes, requests, hours, disk. Reads no weights."""

from .plan import Plan as Plan
from .plan import make_plan as make_plan
