"""What stands out among models."""
