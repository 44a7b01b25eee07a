"""Scores of pairs of models, normalised against the family's strangers, and what they prove."""
