"""What a run is told: its file, its options, its world. Nothing here loads torch."""
