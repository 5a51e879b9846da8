"""Where the layers are: family descriptions, loading, counting, surgery."""
