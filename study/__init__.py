"""What a fine-tune changed inside the network."""
