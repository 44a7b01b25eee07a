"""A small family, trained and indexed."""
