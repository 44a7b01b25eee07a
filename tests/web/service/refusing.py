"""What a process beside the tests is told to do; it loads nothing else of them."""

from deltadex.errors import RequestError


def refuse(text):
    raise RequestError(text)
