"""Models that were trained on a data set."""
