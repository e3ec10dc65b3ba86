"""What a run tells of itself: metrics, logs, console."""
