"""The ClientApp: everything is in latte; the mods take their options from the run's configuration."""

from latte.flower.node import make_client_app, precision_mod, privacy_mod

app = make_client_app(mods=[precision_mod(), privacy_mod()])
