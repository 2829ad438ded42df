"""The shadow heap.   values from outside the trace  ->  stand-ins, snapshots, differences at the end"""
