"""The shape of a network's states: dimension, direction, distance from a reference language."""
