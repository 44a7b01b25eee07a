"""Bytes to tensors: headers parsed and checked, tensors read one at a time."""
