"""An index of a family as a folder of files that others can search: written, fetched, read."""
