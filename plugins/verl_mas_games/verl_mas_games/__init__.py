"""Games for verl-mas: an installable plugin that provides tasks and workflows through the entry point `verl_mas`."""
