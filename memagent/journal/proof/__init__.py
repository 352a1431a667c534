"""What proves that a log is whole: the audit, noted tips, redactions, a search of files."""
