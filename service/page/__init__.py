"""The files of the page that the service shows and the map file carries."""
