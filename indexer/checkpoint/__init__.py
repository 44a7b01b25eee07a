"""Bytes to tensors: headers parsed and checked, tensors read one at a time.

Whatever is wrong with a model's files is a `ModelError` with a code of `errors.REASONS`.
"""

from .derived import EIGHT_BITS as EIGHT_BITS
from .derived import Derived as Derived
from .derived import DerivedCheckpoint as DerivedCheckpoint
from .derived import dequantised as dequantised
from .derived import is_eight_bit as is_eight_bit
from .derived import turned as turned
from .files import ALL_TENSORS as ALL_TENSORS
from .files import DTYPES as DTYPES
from .files import FEW_BYTES as FEW_BYTES
from .files import READ_AGAIN as READ_AGAIN
from .files import WHOLE_TENSORS as WHOLE_TENSORS
from .files import Buffer as Buffer
from .files import ByteSource as ByteSource
from .files import Checkpoint as Checkpoint
from .files import Config as Config
from .files import ModelFolder as ModelFolder
from .files import ReadPlan as ReadPlan
from .files import RowBlock as RowBlock
from .files import TensorRef as TensorRef
from .files import decode as decode
from .files import model_type as model_type
from .files import read_json as read_json
from .gguf_file import GgufCheckpoint as GgufCheckpoint
from .weights import ADAPTER_WEIGHTS as ADAPTER_WEIGHTS
from .weights import USUAL_WEIGHTS as USUAL_WEIGHTS
from .weights import choose_weights as choose_weights
from .weights import foreign_lora as foreign_lora
from .weights import is_adapter as is_adapter
from .weights import is_foreign_lora as is_foreign_lora
from .weights import open_adapter_weights as open_adapter_weights
from .weights import open_local as open_local
from .weights import open_weights as open_weights
from .weights import quantization as quantization
from .weights import refuse_diffusion as refuse_diffusion
from .weights import shard_files as shard_files
from .weights import with_most_bits as with_most_bits
