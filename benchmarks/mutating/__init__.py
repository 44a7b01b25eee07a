"""Mutation testing: small changes of the source, the tests that reach each, whether one fails."""

from .folders import FOLDERS, Folder
from .mutants import Mutant, mutants_of
from .score import Verdict, table
from .tree import Tree
from .trials import Result, Trials

__all__ = [
    "FOLDERS",
    "Folder",
    "Mutant",
    "Result",
    "Tree",
    "Trials",
    "Verdict",
    "mutants_of",
    "table",
]
