"""A family's tree: parents with probabilities."""
