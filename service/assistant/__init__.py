"""A catalog as tools for assistants, over the Model Context Protocol: `deltadex mcp`."""
