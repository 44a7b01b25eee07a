from .spectrum_study import MatrixSpectrum, SpectrumReport, fit_power_law, spectrum_study

__all__ = ["MatrixSpectrum", "SpectrumReport", "fit_power_law", "spectrum_study"]
