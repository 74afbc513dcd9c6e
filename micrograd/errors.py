"""Errors that are the user's to mend: the command line prints their message alone, as one line."""

from __future__ import annotations


class UserError(Exception):
    """A mistake of the user, explained in the message. Classes that name the kind of mistake derive from it."""
