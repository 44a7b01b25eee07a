"""Mutation testing: a small change of the source, the tests that reach it, and whether one fails."""

from .folders import FOLDERS, Folder
from .mutants import Mutant, mutants_of
from .score import Verdict, table
from .tree import Tree
from .trials import Trials

__all__ = ["FOLDERS", "Folder", "Mutant", "Tree", "Trials", "Verdict", "mutants_of", "table"]
