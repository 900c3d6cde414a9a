"""What AsyncClient offers, one file per noun."""
