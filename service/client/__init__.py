"""A catalog that a service holds, as a `Database`: `deltadex.connect`."""
