import sys

numbers = sorted(line for line in sys.stdin)
print(float(numbers[len(numbers) // 2]))
