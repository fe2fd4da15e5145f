def extend(source, path):
    raise NotImplementedError
