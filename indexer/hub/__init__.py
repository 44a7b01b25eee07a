"""The Hugging Face Hub: families listed, models described, weights read by ranges.

Whatever the Hub refuses, or does not answer as it should, is a `ModelError` with a code of
`errors.REASONS`; a family that cannot be listed is a `SourceError`.
"""

from .call import LocalBudget as LocalBudget
from .call import RateLimit as RateLimit
from .call import RequestKind as RequestKind
from .files import HubWeights as HubWeights
from .files import read_small_file as read_small_file
from .files import request_bytes as request_bytes
from .files import stated_bytes as stated_bytes
from .hub_model import HubModel as HubModel
from .hub_model import describe as describe
from .hub_model import early_refusal as early_refusal
from .hub_model import is_repo_id as is_repo_id
from .kept_ranges import RangeFolder as RangeFolder
from .published import HubSource as HubSource
from .published import NoIndex as NoIndex
from .published import is_remote as is_remote
from .published import remote_source as remote_source
from .published import upload_files as upload_files
from .session import HubSession as HubSession
from .session import run_session as run_session
from .walk import ListingMemory as ListingMemory
from .walk import WalkCounts as WalkCounts
from .walk import list_family as list_family
