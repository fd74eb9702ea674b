# What Duramen uses of py4j, which comes without types.
