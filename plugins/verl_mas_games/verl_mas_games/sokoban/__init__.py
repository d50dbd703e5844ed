"""Sokoban for verl-mas: the game, its environment and its workflow."""
