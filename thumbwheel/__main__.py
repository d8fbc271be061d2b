import sys

from thumbwheel.cli import main

sys.exit(main())
