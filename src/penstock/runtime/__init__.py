"""When and where operators of the graph work: placement of buffers, workers, strategies, threads.

Owns: buffers, virtual operators, workers, strategies, what waits on disk.
Must not know: what operators compute. Enter at: ``run.Runtime``.
"""
