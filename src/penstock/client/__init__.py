"""A database on a server, with the interface of one in the process. It needs nothing of ``penstock[server]``.

Owns: requests to a server, what is sent again, positions of readers. Must not know: how a server works inside.
Enter at: ``database.RemoteDatabase``; users call ``penstock.connect("http://…")``.
"""
