"""Logical plans.

Owns: the query as data: typed, frozen nodes, facts derived from them, rewrites that keep every answer, cost, JSON and
words.
Must not know: texts, engines. Enter at: ``nodes``; ``plan/rules/``.
"""
