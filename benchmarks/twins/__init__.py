"""Models of kinds that no other benchmark has, each of them one function for arrays of Values and for those of JAX."""
