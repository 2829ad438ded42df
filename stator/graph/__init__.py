"""The torch recorder.   torch calls of the program on fake tensors  ->  an FX graph"""
