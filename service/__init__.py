"""The page in a browser, and the `service` that answers it and others over HTTP."""
