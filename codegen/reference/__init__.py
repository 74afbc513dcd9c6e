"""The languages run and checked, to be compared with: tests and tools import it, and wheels do not have it."""
