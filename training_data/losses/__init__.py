"""Losses by what a base is: what its fine-tunes would minimise on a data set."""

from .choice import LOSSES as LOSSES
from .choice import choose_loss as choose_loss
from .loss import Loss as Loss
