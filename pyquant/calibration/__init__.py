"""What enters a model's matrices: collecting its second moments, and the files that hold them."""

from pyquant.calibration.stats_file import Calibration, CalibrationText, Origin

__all__ = ["Calibration", "CalibrationText", "Origin"]
