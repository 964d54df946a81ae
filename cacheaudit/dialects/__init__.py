"""Usage records of every provider, normalised to five disjoint input parts."""
