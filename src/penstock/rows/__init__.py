"""Rows as users give them: values, times and texts become typed columns, and rows that do not fit are told apart.

Owns: conversion of what comes in, and how it is written out as text. Must not know: streams, files, queries.
Enter at: ``given``.
"""
