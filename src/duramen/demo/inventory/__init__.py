"""`make demo-inventory`: an inventory of many topics, created, searched, renamed, moved, killed and checked."""
