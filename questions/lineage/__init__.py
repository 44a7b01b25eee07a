"""Which models were trained from which."""
