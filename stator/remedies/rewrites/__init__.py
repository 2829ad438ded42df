"""Rewrites, one family a file.   a place that breaks  ->  candidates; importing a file registers its rewrites"""
