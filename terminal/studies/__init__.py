"""Documents of the studies, drawn as tables for people: a file for each study."""
