"""The demos of `gateway demo`, a distribution of its own.

command    `gateway demo` itself
setup      the demo's directory, certificates and configuration; what each sender sends
processes  the child processes: daemon, Spark job, senders, game clients, `gateway tap`
scores     the Spark job, with a streaming query whose results are pushed to players
players    game clients that receive those pushes
follow     shows how far the events have come, until all are in the tables
progress   a snapshot of how far the events have come, for the live view
tables     what the lake holds, read without Spark
traffic    what a user would ask the tables first
nodes      several gateways: configurations, processes, senders
cluster    `gateway demo --cluster`: many gateways, one table
edge       `gateway demo --edge`: edges that forward to a hub
report     the final report: audit, row counts, where everything is
"""
