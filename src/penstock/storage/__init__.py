"""What is kept on disk: versions of the state of queries.

Owns: files and their checksums. Must not know: what operators keep. Enter at: ``versions``.
"""
