"""The languages that rules read: one vocabulary for English, German and Spanish."""
