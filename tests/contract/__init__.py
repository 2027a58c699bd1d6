"""What every store must do. A new store is one entry in `conftest.STORES` and passes all of it unchanged."""
