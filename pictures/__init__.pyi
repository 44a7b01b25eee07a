from .figures import Picture as Picture
from .figures import Width as Width
from .figures import check_ending as check_ending
from .figures import new_picture as new_picture
from .figures import save_picture as save_picture
from .lineage import check_lineage_ending as check_lineage_ending
from .lineage import draw_lineage as draw_lineage
from .lineage import graphviz_lineage as graphviz_lineage
