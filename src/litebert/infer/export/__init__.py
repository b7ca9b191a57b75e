"""A checkpoint in, graphs that other runtimes run out: `litebert export`.

graph.py writes ONNX graphs, network.py says what the model computes, folder.py publishes a folder
that the ONNX Runtime and OpenVINO engines read, whole.py one ordinary graph for other programs,
web.py a folder for a browser, with the JavaScript in browser/.
"""
