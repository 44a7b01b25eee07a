"""Calls that change files, recorded and made to fail; and what a disk keeps when the power goes."""
