"""A database of this process on a directory: what is written down before it counts, and how all of it is had again."""
