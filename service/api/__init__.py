"""The HTTP service: a catalog's similarity search for programs and for the page."""
