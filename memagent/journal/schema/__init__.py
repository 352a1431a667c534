"""The journal's tables: their names, their state, and what they hold.

Only `tables` loads SQLAlchemy.
"""
