"""Request bodies of every supported API, expanded to content blocks."""
