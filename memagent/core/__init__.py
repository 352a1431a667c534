"""Pure records and rules: standard library and pydantic only.

Import the module you need; nothing is re-exported here.
"""
