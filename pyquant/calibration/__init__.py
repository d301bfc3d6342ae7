"""Collect what enters a model's matrices, its Hessian statistics, and keep it in files."""

from pyquant.calibration.calibration import AnyCalibration, Calibration, open_calibration
from pyquant.calibration.hessian_file import CalibrationText, Origin

__all__ = ["AnyCalibration", "Calibration", "CalibrationText", "Origin", "open_calibration"]
