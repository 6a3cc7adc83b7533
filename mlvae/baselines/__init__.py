"""The systems that the paper compares with: recognise freely, align, compare with the text."""
