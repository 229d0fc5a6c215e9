import latte

with latte.Device("http://127.0.0.1:8420", encoder="onnx:clip-b16", name="camera-7") as device:
    for answer in device.watch("photos"):
        print(answer.file, answer.label)
