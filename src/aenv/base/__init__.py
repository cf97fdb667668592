"""The floor: what every other part of aenv may use, and what uses none of them."""
