"""The experiments of the papers: what they measure, what was claimed, and their figures."""
