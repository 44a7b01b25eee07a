"""The Hugging Face Hub: families listed, models described, weights read by ranges.

Whatever the Hub refuses, or does not answer as it should, is a `ModelError` with a code of
`errors.REASONS`; a family that cannot be listed is a `SourceError`.
"""

from .files import MAX_SMALL_FILE as MAX_SMALL_FILE
from .files import HubWeights as HubWeights
from .files import RangeFolder as RangeFolder
from .files import read_small_file as read_small_file
from .files import request_bytes as request_bytes
from .files import stated_bytes as stated_bytes
from .models import SKIPPED as SKIPPED
from .models import FamilyWalk as FamilyWalk
from .models import HubModel as HubModel
from .models import ListingMemory as ListingMemory
from .models import WalkCounts as WalkCounts
from .models import describe as describe
from .models import early_refusal as early_refusal
from .models import is_repo_id as is_repo_id
from .published import HubSource as HubSource
from .published import NoIndex as NoIndex
from .published import is_remote as is_remote
from .published import remote_source as remote_source
from .published import upload_files as upload_files
from .session import HubSession as HubSession
from .session import LocalBudget as LocalBudget
from .session import RateLimit as RateLimit
from .session import RequestKind as RequestKind
from .session import run_session as run_session
