"""What a cluster's controller decides about nodes and replicas: from the state and what happened to events.

Pure, as all of the controller. Of what is not in the log, `membership` has the sessions of nodes and `reporting` what
followers say of their leaders; a controller that begins to lead begins both anew.
"""
