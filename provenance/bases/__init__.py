"""Which base a model comes from, and what was done to its weights."""
