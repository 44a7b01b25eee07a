"""Makes the texts of the built-in panel of data sets: `python -m benchmarks.panel`."""
