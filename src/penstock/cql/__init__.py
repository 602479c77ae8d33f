"""The language.

Owns: the text: grammar, positions, names, types, declarations; formatting it back.
Must not know: data, engines. Enter at: ``text.parse``, ``queries.bind_query``, ``declarations``.
"""
