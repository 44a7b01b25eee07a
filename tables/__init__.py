"""Files as rows: `.csv`, `.tsv`, `.json`, `.jsonl`, lines, parquet and Arrow, read one way by all.

Not by DuckDB (2.0), which was tried. `read_csv` numbers only the rows that it rejects, refuses a
whole file for one open quote, and knows neither Windows-1252 nor UTF-32, nor UTF-16 by its mark;
`read_json` does not say what is wrong with a line, and refuses a file for one of 129 levels;
`read_parquet` fills 4 GiB under a limit of 1 for a dictionary of 200 KB, and passes broken UTF-8.
"""

from .csv_table import open_named_csv as open_named_csv
from .json_table import json_rows as json_rows
from .table import NumberedRow as NumberedRow
from .table import Row as Row
from .table import Table as Table
from .text_file import TextFile as TextFile
from .text_file import errors_as as errors_as
