"""How many directions an update has, by role and depth, and what law that follows."""
