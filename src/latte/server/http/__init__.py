"""The service over HTTP: limits, routes, access, the dashboard's data."""
