"""Whether a measure of stored studies goes with a column that the user gives."""
