"""The routes of the REST service, a module for each resource."""
