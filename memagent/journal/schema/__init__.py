"""The tables of the journal, and the wall between users on PostgreSQL."""
