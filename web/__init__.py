"""Maps of families, as pages for a browser and as pictures; `service` answers over HTTP."""

from .family_map import Colour, DataNeighbours, NearData, Neighbour, Neighbourhoods
from .map_drawing import check_ending, encode_names, write_map

__all__ = [
    "Colour",
    "DataNeighbours",
    "NearData",
    "Neighbour",
    "Neighbourhoods",
    "check_ending",
    "encode_names",
    "write_map",
]
