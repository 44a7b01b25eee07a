"""What no test may share with the user, or with another test."""

from __future__ import annotations

import os

os.environ["DELTADEX_CACHE"] = ""
"""Nothing of a base is kept between commands, except by tests that name a folder."""
