"""Trackers: services and tools that show the curves of a run, where they are installed."""

from tokenmill_trainer.watching.trackers.config import TrackersConfig, check_installed
from tokenmill_trainer.watching.trackers.opening import open_trackers
from tokenmill_trainer.watching.trackers.sending import Trackers
from tokenmill_trainer.watching.trackers.tracker import SampledText

__all__ = ["SampledText", "Trackers", "TrackersConfig", "check_installed", "open_trackers"]
