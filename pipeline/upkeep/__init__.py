"""For how long tables keep what they hold, and how a principal is forgotten: without Spark, file by file.

Bronze removes its own old hours when it is compacted; here stands what concerns silver and gold, and erasure, which
concerns all of them.
"""
