"""A full fine-tune as a LoRA adapter."""
