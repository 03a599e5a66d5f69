"""Figures, measured as ratios within one run: ``tox -e bench``. Nothing here fails because a machine is slow."""
