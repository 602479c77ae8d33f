"""Arrow Flight SQL: the fast way in and out, for ADBC, for pyarrow.flight and for the Python client.

    listener.py  starts and ends the server
      server.py  the calls of Flight: what is asked for, who asks, what goes out
        catalog.py  the tables about tables that drivers ask for     errors.py  our errors as errors of Flight
          wire.py  the messages of Flight SQL, decoded and encoded by hand (pyarrow has no Flight SQL server)

Owns: messages, tickets and descriptors of Flight. Must not know: Database, Core. Enter at: ``listener.listener``.
"""
