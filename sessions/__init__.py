"""The core: sessions, their lifecycle and their records. Knows no protocol."""
