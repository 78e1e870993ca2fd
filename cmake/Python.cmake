# The extension modules come with the Python layer.
