from .effective_rank import energy_rank, entropy_rank, stable_rank
from .law_choice import fit_laws
from .rank_report import FamilyRankReport, RankReport
from .ranks_by_depth import family_ranks, rank_study, with_laws

__all__ = [
    "FamilyRankReport",
    "RankReport",
    "energy_rank",
    "entropy_rank",
    "family_ranks",
    "fit_laws",
    "rank_study",
    "stable_rank",
    "with_laws",
]
