"""Files of text as streams of characters, and which character separates their columns."""
