from .evidence import EVIDENCE_OF_DATA as EVIDENCE_OF_DATA
from .evidence import NULL as NULL
from .evidence import evidence_table as evidence_table
from .evidence import show_left_out as show_left_out
from .evidence import stands_out as stands_out
from .progress import RunProgress as RunProgress
from .sections import show_answer as show_answer
