"""Data sets in verl's format for verl-mas: one prompt, one response, one score."""
