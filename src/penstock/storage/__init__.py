"""What is kept on disk: logs, records and versions of the state.

Owns: files and their checksums. Must not know: what operators keep. Enter at: ``store``; ``versions`` on Spark.
"""
