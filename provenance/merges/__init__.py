"""The parents of a merge, and its proof by rows."""
