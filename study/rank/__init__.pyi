from .law_choice import fit_laws
from .rank_study import FamilyRankReport, RankReport, family_ranks, rank_study

__all__ = [
    "FamilyRankReport",
    "RankReport",
    "family_ranks",
    "fit_laws",
    "rank_study",
]
