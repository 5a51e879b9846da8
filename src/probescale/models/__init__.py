"""Models and their layers: family descriptions, loading, counting, cutting, shrinking."""
