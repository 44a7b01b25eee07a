"""Files as rows: `.csv`, `.tsv`, `.json`, `.jsonl`, lines, parquet and Arrow, read one way by all.

Not by DuckDB (2.0), which was tried. `read_csv` numbers only the rows that it rejects, refuses a
whole file for one open quote, and knows neither Windows-1252 nor UTF-32, nor UTF-16 by its mark;
`read_json` does not say what is wrong with a line, and refuses a file for one of 129 levels;
`read_parquet` fills 4 GiB under a limit of 1 for a dictionary of 200 KB, and passes broken UTF-8.
"""

from .text_tables import DataTable as DataTable
from .text_tables import NumberedRow as NumberedRow
from .text_tables import Row as Row
from .text_tables import TextFile as TextFile
from .text_tables import errors_as as errors_as
from .text_tables import json_rows as json_rows
from .text_tables import open_named_csv as open_named_csv
