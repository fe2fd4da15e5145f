"""Prints the requirements in setup.cfg, and those of the extras named as arguments.

Images install them in a separate layer, which stays valid when only the code changes.
"""

import configparser
import sys

settings = configparser.ConfigParser()
settings.read("setup.cfg", encoding="utf-8")
texts = [settings["options"]["install_requires"]]
texts += [settings["options.extras_require"][extra] for extra in sys.argv[1:]]
print("\n".join(texts).strip())
