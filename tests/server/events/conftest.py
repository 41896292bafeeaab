"""The fixtures of `support.gateway_fixtures`."""

from support.gateway_fixtures import *
