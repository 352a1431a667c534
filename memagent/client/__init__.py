"""The typed HTTP client of the REST service, and the bodies and problems that both
sides speak (`wire`, `faults`).
"""
