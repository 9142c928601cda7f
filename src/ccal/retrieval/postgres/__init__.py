"""The home in a PostgreSQL database with pgvector.

home      PostgresHome: changes and searches
database  the connection, its transactions, the writer's lock, tables and their indexes
"""

from ccal.retrieval.postgres.home import PostgresHome

__all__ = ["PostgresHome"]
