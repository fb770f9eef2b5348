"""dokl behind the interfaces of other libraries: `dokl.adapters.river`."""
