"""How alike the layers of two networks represent the same tokens, up to a rotation."""
