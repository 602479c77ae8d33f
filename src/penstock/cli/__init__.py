"""The command line.

Owns: commands, formats on a terminal, exit codes.
Must not know: how statements are carried out. Enter at: ``main``.
"""
