"""The public face in Python, and what every question works on."""
