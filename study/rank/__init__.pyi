from .law_choice import fit_laws
from .rank_study import RankReport, family_ranks, rank_study

__all__ = ["RankReport", "family_ranks", "fit_laws", "rank_study"]
