from .power_law import fit_power_law
from .spectrum_report import MatrixSpectrum, SpectrumReport
from .spectrum_study import spectrum_study

__all__ = ["MatrixSpectrum", "SpectrumReport", "fit_power_law", "spectrum_study"]
