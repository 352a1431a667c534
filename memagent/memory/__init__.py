"""The memory bank: one scope's memory with its log, input, verbs, threads, history and files.

`care` reviews, undoes and erases; `judging` weighs evidence for answers.
"""
