"""The file of an embedded database: its folder and permissions, its write-ahead log, and copies of it."""
