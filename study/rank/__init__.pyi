from .law_choice import fit_laws
from .rank_study import (
    FamilyRankReport,
    RankReport,
    energy_rank,
    entropy_rank,
    family_ranks,
    rank_study,
    stable_rank,
    with_laws,
)

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
