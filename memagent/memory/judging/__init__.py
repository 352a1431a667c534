"""The judgement of evidence: whether what memory holds answers what is asked."""
