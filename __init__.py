"""deltadex: a vector database of fine-tuned models.

Folders, in the direction data flows: `indexer` turns weights into fingerprints, `store`
keeps them, `search` asks questions of them, `terminal` and `web` show the answers.
"""

__version__ = "0.1.0"
