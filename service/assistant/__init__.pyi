from .server import serve as serve
from .tools import Asked as Asked
from .tools import Tools as Tools
