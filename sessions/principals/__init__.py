"""The limits of principals: the policies that an operator sets, and the effective limits of each principal."""
