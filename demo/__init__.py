"""The whole product without a network: train a small family, index it, score it, map it."""

from .run import Screen, run_demo

__all__ = ["Screen", "run_demo"]
