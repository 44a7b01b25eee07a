from .spectrum_study import SpectrumReport, fit_power_law, spectrum_study

__all__ = ["SpectrumReport", "fit_power_law", "spectrum_study"]
