"""The kinds of tables that the Spark job makes, a module each, whose interface is `gateway.sink`.

delta_log, iceberg_snapshots    what a table's own commits say, and its upkeep
delta_table, iceberg_table      how a batch becomes one commit
words                           the ledgers in a commit's words
"""
