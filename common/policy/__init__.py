"""Scheduling decisions as plain functions: numbers in, numbers out."""
