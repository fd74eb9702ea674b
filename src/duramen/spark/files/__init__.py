"""Records of streams as directories of Parquet files: the driver's side of the option `parquetTo`."""
