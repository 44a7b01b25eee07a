"""Vectors in Qdrant: exported from the catalog, and searched in the place of FAISS."""
