"""What waits in buffers: in memory up to a bound, and on disk beyond it.

    Buffer (one for each edge) ─ Queue (its position) ─ Line (one for each operator that sends) ─ Storage (one for all)

An operator that sends to several buffers puts a message into one line; each buffer's queue refers to it, and whoever
takes it last lets it go. A line has files of its own, in segments, which are dropped as a whole.
"""
