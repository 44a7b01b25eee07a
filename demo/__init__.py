"""The whole product without a network: train a small family, index it, score it, map it."""

from .family import train_family

__all__ = ["train_family"]
