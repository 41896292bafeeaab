"""The sites that the scripted agent visits: hand-written pages and a server for them."""
