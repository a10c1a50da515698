"""One module a version; a version is never changed once it was released."""
