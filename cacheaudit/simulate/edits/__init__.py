"""Counterfactuals, one file each; see :mod:`cacheaudit.simulate.edit`."""
