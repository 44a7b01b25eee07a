"""How many directions an update has, by role and depth, and what law that follows."""

from .effective import energy_rank, entropy_rank, stable_rank
from .family import family_ranks
from .fit import fit_laws
from .report import FamilyRankReport, RankReport
from .study import rank_study

__all__ = [
    "FamilyRankReport",
    "RankReport",
    "energy_rank",
    "entropy_rank",
    "family_ranks",
    "fit_laws",
    "rank_study",
    "stable_rank",
]
