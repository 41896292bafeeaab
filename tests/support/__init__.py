"""Parts that the tests share. Each module says what it runs or stands for; the names of fixtures are in conftest.py."""
