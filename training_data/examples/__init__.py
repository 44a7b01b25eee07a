"""Examples of a data set, as a model reads them."""
