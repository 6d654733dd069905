"""excite"""
