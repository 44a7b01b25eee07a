from .audit import AuditOptions as AuditOptions
from .audit import Finding as Finding
from .audit import Kind as Kind
from .audit import audit_families as audit_families
from .one_direction import DirectionEdit as DirectionEdit
from .one_direction import DirectionSearch as DirectionSearch
from .one_direction import find_direction_edit as find_direction_edit
