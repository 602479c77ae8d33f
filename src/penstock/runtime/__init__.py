"""When and where operators of the graph work: placement of buffers, workers, strategies, threads.

Owns: buffers, virtual operators, workers, strategies, what waits on disk.
Must not know: what operators compute. Enter at: ``run.Runtime``.

Plug-in points, each a dictionary by name that is described on top of its module:

- ``strategies.STRATEGIES``: what works next
- ``lanes.LANES``: how prioritised rows overtake in a buffer (the setting ``mode``)
- ``placement.PLACEMENTS``: where ``hybrid`` puts buffers
- ``owners.ARCHITECTURES``: how operators are given to threads
- ``buffer.BUFFERS``: what a buffer is made of

``settings.USERS`` are what users set. Ways that exist only for comparison are in the folder ``experiments`` of a clone;
nothing here knows of them.
"""
