"""Networks in Caffe's files: what they say, the networks they describe, and the weights they hold."""
