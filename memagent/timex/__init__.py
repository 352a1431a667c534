"""Time phrases: from words such as "last Friday" to the spans of time they name."""
