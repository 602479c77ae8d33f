"""``penstock serve``: one database for many clients, over HTTP, Arrow Flight SQL and the PostgreSQL protocol.

    life.py  starts and ends everything: the database, the service, a listener for each protocol
      http/  flight/  postgres/       the protocols: they know Service, Session, Outcome, Feed and Page
        service.py                    everything that a client can ask for, checked against who asks
          access.py  subscriptions.py  feeds.py  adhoc.py  audit.py

Owns: who may do what, what clients see of a database, named subscriptions, the life of a server.
Must not know: how a query is evaluated. Enter at: ``service.Service``; ``life.serve``.
"""
