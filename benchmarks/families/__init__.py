"""Labelled families by real training, and every recipe scored on them."""
