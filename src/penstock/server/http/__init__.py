"""HTTP: streams, relations, queries and their answers as resources under ``/api``, and one plain page at ``/``.

    listener.py   a thread with one asyncio loop, uvicorn, TLS
      app.py        from a request to a response: who asks, limits, errors, log
        routes.py     every endpoint with its entry in the OpenAPI document
          streams.py queries.py answers.py sql.py system.py      what the endpoints do
            events.py     server-sent events

Owns: what requests and responses look like. Must not know: databases. Enter at: ``listener``.
"""
