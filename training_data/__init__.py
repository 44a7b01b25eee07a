"""Training data as a query: which fine-tunes were trained on it."""
