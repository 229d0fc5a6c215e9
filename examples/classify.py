from latte import Classifier

classifier = Classifier(["cat", "dog"], encoder="onnx:clip-b16")
print(classifier.predict("photo.jpg"))
