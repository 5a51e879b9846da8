"""Making what is not a layer smaller: vocabulary, embeddings, feed-forward units."""
