"""`make demo-inventory`: an inventory of many topics, made, searched, renamed, moved, killed and checked."""
