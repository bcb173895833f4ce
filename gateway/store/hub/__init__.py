"""Files of other gateways, as a hub takes them.

In come a file's name and its bytes; out goes a file that is whole, checked and synced
in the spool. Nothing here speaks to the network, and no footer is believed before its
sizes are bounded.

    arrivals   takes the files
    archiving  moves files to the archive, none in another one's place
    promised   compares the rows with what the name promises
    pages      how large the pages are when they are unpacked
    chunks     what a footer says of columns, where pyarrow would end the process
    thrift     what a footer would take in memory
"""
