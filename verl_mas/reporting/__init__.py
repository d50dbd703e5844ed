"""The face of a run: its directory, log, progress bar, learning curve and summary. Knows neither verl nor Ray."""
