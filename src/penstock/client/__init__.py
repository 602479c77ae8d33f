"""A database on a server, with the interface of one in the process. It needs nothing of ``penstock[server]``."""
