"""Networks as the studies see them: loaded, hooked, run over texts."""
