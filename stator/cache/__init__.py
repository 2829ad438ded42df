"""Entries of one call site.   guarded segments  ->  their order of dispatch, shared graphs, frames below a break"""
