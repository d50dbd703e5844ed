"""Writers for verl-mas: two roles write a short word each, at the same time; small tasks on which estimators show."""
