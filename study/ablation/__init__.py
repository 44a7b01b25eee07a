"""What each term of an embedding is worth: predictions from every subset of the terms."""
