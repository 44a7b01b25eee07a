from . import errors as errors
from .questions.doctor import doctor as doctor
from .questions.face.database import Database as Database
from .questions.face.database import open as open
from .results import Table as Table
from .service.client import connect as connect

__version__: str
