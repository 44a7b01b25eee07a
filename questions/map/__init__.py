"""A family as one page or picture."""
