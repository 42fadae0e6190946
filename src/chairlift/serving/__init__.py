"""A whole server: the parent, its engine and its front ends, put together from settings."""
