"""Checking the steps of a training while it runs, out of a spool folder."""
