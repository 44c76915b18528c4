"""torch tensors as this leaf takes, keeps and reads them."""
