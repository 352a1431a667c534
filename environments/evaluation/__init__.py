"""The evaluation: arms, runs, figures and reports."""
