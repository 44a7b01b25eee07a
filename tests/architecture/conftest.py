"""Quiet transformers: saving a tiny model is no news."""

import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
