"""What the replay knows of single APIs: how to find, draw, align and compare them."""
