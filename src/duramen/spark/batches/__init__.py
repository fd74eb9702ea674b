"""Record batches to Arrow and back, by the native package or by its Python twins. Pure."""
