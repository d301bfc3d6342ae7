"""What enters a model's matrices: collecting its second moments, and the files that hold them."""

from pyquant.calibration.calibration import AnyCalibration, Calibration, open_calibration
from pyquant.calibration.stats_file import CalibrationText, Origin

__all__ = ["AnyCalibration", "Calibration", "CalibrationText", "Origin", "open_calibration"]
