"""What the tests of the service share."""

from collections.abc import Iterator

import pytest

from postgres import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for all tests of a process; each makes a schema or a database of its own."""
    with running_postgres() as server:
        yield server
