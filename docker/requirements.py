"""Prints what setup.cfg asks for, with the extras that are named: the layer of an image that code does not change."""

import configparser
import sys

settings = configparser.ConfigParser()
settings.read("setup.cfg", encoding="utf-8")
texts = [settings["options"]["install_requires"]]
texts += [settings["options.extras_require"][extra] for extra in sys.argv[1:]]
print("\n".join(texts).strip())
