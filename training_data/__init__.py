"""A data set as the query: the gradient of a base over its examples, as a fingerprint."""
