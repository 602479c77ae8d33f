"""When and where operators of the graph work: placement of buffers, workers, strategies, threads."""
