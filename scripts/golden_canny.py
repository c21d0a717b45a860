#!/usr/bin/env python3
"""Makes tests/fixtures/control: a picture and its edges as OpenCV finds them.

    scripts/golden_canny.py tests/fixtures/control

`photo.png` has slopes of every direction and steepness, and colours that differ; `edges.png` is `cv2.Canny(photo, 100, 200)`,
the call with which the pictures were made that control networks for edges were trained on.
Needs: pip install opencv-python-headless numpy.
"""

import sys
from pathlib import Path

import cv2
import numpy as np


def main() -> None:
    folder = Path(sys.argv[1])
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, (61, 83, 3), dtype=np.uint8)
    photo = cv2.GaussianBlur(noise, (5, 5), 1.1)
    cv2.circle(photo, (24, 30), 17, (250, 40, 20), -1)
    cv2.rectangle(photo, (45, 8), (76, 30), (20, 200, 90), -1)
    cv2.line(photo, (40, 58), (82, 35), (255, 255, 255), 3)
    cv2.imwrite(str(folder / "photo.png"), photo)
    rgb = cv2.cvtColor(photo, cv2.COLOR_BGR2RGB)
    cv2.imwrite(str(folder / "edges.png"), cv2.Canny(rgb, 100, 200))


if __name__ == "__main__":
    main()
