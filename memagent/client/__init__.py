"""The typed HTTP client of the REST service, and the bodies and problems of both sides."""
