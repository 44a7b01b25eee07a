"""The page of requests that the service shows: Swagger UI's frame and its script."""
