"""The PostgreSQL protocol: wire protocol 3 for psql, psycopg, asyncpg, SQLAlchemy, pgjdbc, Grafana.

Owns: frames, login by SCRAM, prepared statements, portals and cursors, COPY, what clients ask the system catalogs.
Must not know: the database. Everything about streams and queries goes through ``Service``.
Enter here: ``listener.listener``.
"""
