"""What hidden states are made of, and which parts of a network a fine-tune edited."""
