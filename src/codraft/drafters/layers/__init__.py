"""The torch parts that learned drafters are made of."""
