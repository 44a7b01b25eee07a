"""Checkpoints of the shape of large models, and a Hub on loopback that serves them."""
