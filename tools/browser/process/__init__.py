"""Browser processes and their drivers: finding, installing, starting and ending them."""
