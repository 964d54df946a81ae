"""Sessions, calls and findings in a SQL database."""
