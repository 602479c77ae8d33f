"""Penstock in notebooks: what is shown there, the magics ``%cql`` and ``%%cql``, and ``watch``.

``%load_ext penstock`` loads the magics. IPython is needed for them and for ``watch``, nothing here needs it to be
imported.

Owns: HTML and the magics. Must not know: how queries are run. Enter at: ``html``.
"""

from penstock.notebook.live import watch

__all__ = ["watch"]
