"""The ServerApp: a plain loop around the method's exchange."""

from latte.flower.fleet import make_server_app

app = make_server_app()
